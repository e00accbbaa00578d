package bpf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// CheckCapabilities returns an error that names the capabilities that [Load] needs and the calling
// thread lacks. The kernel itself would say "operation not permitted" and no more.
func CheckCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	has := func(number int) bool { return data[number/32].Effective&(1<<(number%32)) != 0 }

	var missing, smaller []string
	if !has(unix.CAP_NET_ADMIN) {
		missing = append(missing, "CAP_NET_ADMIN")
	}
	// CAP_SYS_ADMIN is what the other two were before Linux 5.8, and still includes them. It
	// is what to add: whoever looks into network namespaces needs it as well.
	if !has(unix.CAP_SYS_ADMIN) {
		if !has(unix.CAP_BPF) {
			smaller = append(smaller, "CAP_BPF")
		}
		if !has(unix.CAP_PERFMON) {
			smaller = append(smaller, "CAP_PERFMON")
		}
		if len(smaller) > 0 {
			missing = append(missing, "CAP_SYS_ADMIN (which includes "+strings.Join(smaller, " and ")+")")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("load the bpf program: %w: run as root or add %s", os.ErrPermission, strings.Join(missing, ", "))
}

// ResolveMode tells how [Load] with this mode would attach: TCX, TC or XDP, never Auto. It attaches
// nothing. Errors are those of Load.
func ResolveMode(mode Mode) (Mode, error) {
	if err := CheckCapabilities(); err != nil {
		return "", err
	}
	return resolveMode(mode)
}

// resolveMode turns Auto into what this kernel has, and refuses TCX where it is missing.
func resolveMode(mode Mode) (Mode, error) {
	if mode != Auto && mode != TCX {
		return mode, nil
	}
	err := probeTCX()
	switch {
	case err == nil:
		return TCX, nil
	case !errors.Is(err, ebpf.ErrNotSupported):
		return "", explainLoad(err)
	case mode == TCX:
		return "", fmt.Errorf("attach mode tcx needs Linux 6.6, this is %s: use auto or tc: %w", kernelRelease(), err)
	}
	return TC, nil
}

// probeTCX attaches a program to an interface that cannot exist: a kernel with tcx looks for the
// interface, an older one does not come that far.
func probeTCX() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program to probe for tcx: %w", err)
	}
	defer func() { _ = program.Close() }()

	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: math.MaxInt32,
		Program:   program,
		Attach:    ebpf.AttachTCXIngress,
	})
	if err == nil {
		return errors.Join(errors.New("probe for tcx: interface 2147483647 exists"), attached.Close())
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("probe for tcx: %w", err)
}

// explainLoad says what to do about a program that the kernel refused.
func explainLoad(err error) error {
	if errors.Is(err, unix.EPERM) {
		// The capabilities are there: a container's seccomp filter, or kernel lockdown.
		return fmt.Errorf("load the bpf program: forbidden, though the capabilities are there: allow the bpf system call (seccomp profile, kernel lockdown): %w", err)
	}
	for _, missing := range []error{
		features.HaveMapType(ebpf.RingBuf),
		features.HaveProgramHelper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs),
	} {
		if errors.Is(missing, ebpf.ErrNotSupported) {
			return fmt.Errorf("load the bpf program: this kernel is %s, dupip needs Linux 5.15 or newer: %w", kernelRelease(), missing)
		}
	}
	return fmt.Errorf("load the bpf program: %w", err)
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "of unknown version"
	}
	return unix.ByteSliceToString(name.Release[:])
}
