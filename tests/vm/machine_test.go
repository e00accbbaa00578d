package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// deadline is how long the machine may run. All that is for one kernel takes 15 minutes, what CI plays a few.
	deadline = 50 * time.Minute
	// guestDeadline is the same for a suite, by the clock inside. On a busy machine that
	// one goes up to twice as fast: the emulator catches up with the time it had no CPU.
	guestDeadline = 2*deadline - time.Minute
	// silence is how long a kernel that runs as a program may say nothing: beside all that CI plays, no test takes a fifth of that. It may
	// stop for good, in whatever test.
	silence = 10 * time.Minute
	// onBoard is how many serial lines the machine has without PCI cards.
	onBoard = 4
	// maxLog bounds what is read of a serial line, in bytes.
	maxLog = 64 << 20
)

// machine is a virtual machine with a file behind every serial line.
type machine struct {
	dir   string
	lines int
}

// log is what came out of a serial line so far.
func (m *machine) log(line int) string {
	file, err := os.Open(m.path(line))
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > maxLog {
		return fmt.Sprintf("serial line %d is too long to read, or: %v", line, err)
	}
	data, err := os.ReadFile(m.path(line))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n")
}

func (m *machine) path(line int) string {
	return filepath.Join(m.dir, fmt.Sprintf("serial%d", line))
}

// errSilent is what ends a machine that says nothing any more.
var errSilent = fmt.Errorf("the machine has said nothing for %v", silence)

// watch ends the machine when it has been silent, until ctx ends.
func (m *machine) watch(ctx context.Context, end context.CancelCauseFunc) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for said, last := int64(0), time.Now(); time.Since(last) < silence; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		all := int64(0)
		for line := range m.lines {
			if info, err := os.Stat(m.path(line)); err == nil {
				all += info.Size()
			}
		}
		if all != said {
			said, last = all, time.Now()
		}
	}
	end(errSilent)
}

// run boots and waits until the machine powers off.
func (m *machine) run(ctx context.Context, k *kernel, initramfs string) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	cmd, done, err := m.emulated(ctx, k.image, initramfs), func() {}, error(nil)
	if k.userMode {
		go m.watch(ctx, end)
		cmd, done, err = m.inUserMode(ctx, k.image, initramfs)
	}
	if err != nil {
		return err
	}
	defer done()
	// Then a kernel that is a program ends its other processes, too.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("there is no qemu-system-x86_64: tests/install.sh vm installs it")
	case errors.Is(context.Cause(ctx), errSilent):
		return errSilent
	case ctx.Err() != nil:
		return fmt.Errorf("the machine was still running after %v", deadline)
	case err != nil:
		return fmt.Errorf("run the machine: %w\n%s", err, out)
	}
	return nil
}

// Whatever goes wrong ends the machine: a panic reboots, and an oops panics.
const onPanic = "panic=-1 oops=panic"

// lockedDown is what a kernel says that lets root do the least (security/lockdown/lockdown.c): that forbids dupip nothing.
const lockedDown = "Kernel is locked down from command line"

// emulated is a machine that qemu emulates, so that it runs inside virtual machines that pass no KVM on, and is the same everywhere. On a
// busy host the watchdog and RCU would find a processor that is stuck, and check_timer (arch/x86/kernel/apic/io_apic.c) no timer.
func (m *machine) emulated(ctx context.Context, image, initramfs string) *exec.Cmd {
	args := []string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 " + onPanic + " lockdown=confidentiality nokaslr mitigations=off tsc=reliable nowatchdog no_timer_check rcupdate.rcu_cpu_stall_suppress=1 8250.nr_uarts=8",
	}
	for line := range m.lines {
		if line < onBoard {
			args = append(args, "-serial", "file:"+m.path(line))
			continue
		}
		id := fmt.Sprint("line", line)
		args = append(args, "-chardev", "file,id="+id+",path="+m.path(line), "-device", "pci-serial,chardev="+id)
	}
	return exec.CommandContext(ctx, "qemu-system-x86_64", args...)
}

// inUserMode is a kernel that runs as a program, with one processor
// (Documentation/virt/uml/user_mode_linux_howto_v2.rst). done closes what it writes to.
func (m *machine) inUserMode(ctx context.Context, image, initramfs string) (cmd *exec.Cmd, done func(), err error) {
	library := filepath.Join(m.dir, "xstate.so")
	if out, err := exec.Command("clang-19", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, "um/xstate.c").CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("compile um/xstate.c (tests/install.sh vm installs clang-19): %w\n%s", err, out)
	}
	cmd = exec.CommandContext(ctx, image, "mem=1024M", "initrd="+initramfs, "rdinit=/init", "uml_dir="+m.dir)
	cmd.Args = append(cmd.Args, strings.Fields(onPanic)...)
	cmd.Args = append(cmd.Args, "con=null", "ssl=null")
	done = func() {
		// Its processes are stopped, and stay if it was interrupted.
		_ = exec.Command("pkill", "-KILL", "-f", "^"+regexp.QuoteMeta(image)+" .* uml_dir="+regexp.QuoteMeta(m.dir)).Run()
		for _, file := range cmd.ExtraFiles {
			_ = file.Close()
		}
	}
	for line := range m.lines {
		file, err := os.Create(m.path(line))
		if err != nil {
			done()
			return nil, nil, err
		}
		name := fmt.Sprint("ssl", line)
		if line == 0 {
			name = "con0" // the kernel's
		}
		cmd.Args = append(cmd.Args, fmt.Sprintf("%s=null,fd:%d", name, 3+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	// Its memory is a file.
	cmd.Env = append(os.Environ(), "TMPDIR=/dev/shm", "LD_PRELOAD="+library)
	return cmd, done, nil
}

// problems are the lines in which a kernel reports a problem.
var problems = regexp.MustCompile(`(?m)^.*(BUG:|WARNING:|Oops|Kernel panic|cut here|rcu_\w+ detected|vm: module).*$`)

// brokenPatch is what a kernel reports if one processor comes upon the breakpoint under which another one changes code (text_poke_bp_batch,
// arch/x86/kernel/alternative.c), after it was removed. A real processor does not; the emulated ones of two threads do, rarely.
var brokenPatch = regexp.MustCompile(`Oops: int3: .*`)

// tail is the end of a log.
func tail(log string, lines int) string {
	all := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
