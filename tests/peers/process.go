package peers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// find is the path of a program; Debian has some where not every PATH looks.
func find(program string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program, "/usr/bin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s (tests/install.sh compare installs it): %w", program, exec.ErrNotFound)
}

// process is a program in the netns of a node that ends with us.
type process struct {
	cmd    *exec.Cmd
	dir    string
	exited chan struct{}
	err    error
}

// start starts a program that finds its files in a folder of its own, and passes each line
// it prints to line, one at a time.
func start(n *lab.Node, dir string, line func(string), path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), dir: dir, exited: make(chan struct{})}
	out := &lines{each: line}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), "LC_ALL=C", "TMPDIR="+dir, "HOME="+dir)
	// A child of its own may hold the output open.
	p.cmd.WaitDelay = 2 * time.Second
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig is about the death of this thread. It has a mount namespace of its
		// own, so it is never unlocked and ends with the goroutine.
		runtime.LockOSThread()
		if err := errors.Join(withoutNames(dir), n.Start(p.cmd)); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// withoutNames gives the calling thread, which must be locked and never be used again, a
// mount namespace in which nobody asks DNS for the name of an address: there is no server
// in the lab, and arpwatch would wait for it before each report.
func withoutNames(dir string) error {
	file := dir + "/nsswitch.conf"
	return errors.Join(
		os.WriteFile(file, []byte("passwd: files\ngroup: files\nhosts: files\n"), 0o644),
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""),
		unix.Mount(file, "/etc/nsswitch.conf", "", unix.MS_BIND, ""),
	)
}

// stop ends the program and waits. How it ends then does not matter, but one that has ended
// before has missed what there was.
func (p *process) stop() error {
	defer os.RemoveAll(p.dir)
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended by itself: %w", p.cmd.Path, cmp.Or(p.err, errors.New("without an error")))
	default:
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", p.cmd.Path, err)
		}
		select {
		case <-p.exited:
			return nil
		case <-time.After(5 * time.Second):
		}
	}
	return fmt.Errorf("stop %s: it does not end", p.cmd.Path)
}

// wait polls until ok, or until the program has ended.
func (p *process) wait(ctx context.Context, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %w", p.cmd.Path, p.err)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to listen: %w", p.cmd.Path, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// scratch is a folder for one program on a node; a later lab removes it should we be
// killed.
func scratch(n *lab.Node) (string, error) {
	return os.MkdirTemp("", n.Name+"-peer-")
}

// lines splits what is written into lines.
type lines struct {
	each func(string)
	rest []byte
}

// maxLine is where a line that does not end is cut.
const maxLine = 4096

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found && len(l.rest) < maxLine {
			return len(p), nil
		}
		l.each(string(line))
		l.rest = bytes.Clone(rest)
	}
}
