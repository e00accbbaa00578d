package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// stopTimeout is how long a process may take to end: an agent detaches from 250 pods in about ten seconds,
// leaves the cluster for up to five meanwhile, and then writes its state for up to three.
const stopTimeout = 25 * time.Second

// Process is a program in a netns of a lab. It ends with the lab.
type Process struct {
	cmd    *exec.Cmd
	log    Buffer
	exited chan struct{}
	err    error
}

// Mount replaces a file or a folder for one process.
type Mount struct{ File, At string }

// Launch starts a command inside the netns. Its output is the [Process.Log], unless the
// command has outputs of its own. The lab stops it.
func (n *Netns) Launch(cmd *exec.Cmd, mounts ...Mount) (*Process, error) {
	p, err := n.launch(cmd, mounts)
	if err == nil {
		n.lab.OnClose(p.Stop)
	}
	return p, err
}

// Other goroutines must not run on the main thread: [Netns.Launch] moves threads into mount namespaces,
// and /proc/self shows that of the main thread.
func init() { runtime.LockOSThread() }

// launch is Launch without OnClose. The process has a process group of its own: Ctrl-C is for
// the tests.
func (n *Netns) launch(cmd *exec.Cmd, mounts []Mount) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &p.log, &p.log
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, unix.SIGKILL
	started := make(chan error, 1)
	go func() {
		// Pdeathsig is sent when the thread that started the child ends, so the thread waits for the
		// child. It stays locked, because it is in other namespaces, and ends with the goroutine.
		runtime.LockOSThread()
		err := errors.Join(mountFiles(mounts), netns.Set(n.fd))
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s in netns %s: %w", cmd.Path, n.Name, err)
	}
	return p, nil
}

// mountFiles gives the calling thread a mount namespace of its own with these mounts. What is
// mounted or unmounted below /run/netns later is so there, too.
func mountFiles(mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""))
	for _, m := range mounts {
		if err == nil {
			err = unix.Mount(m.File, m.At, "", unix.MS_BIND, "")
		}
	}
	if err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	return nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is what the process has written so far.
func (p *Process) Log() string { return p.log.String() }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running returns whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Wait waits until the process has ended by itself and returns its exit error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop ends the process with SIGTERM and waits. It returns an error if the process had to be
// killed because it took too long. It may be called more than once, and after Kill.
func (p *Process) Stop() error {
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(Patience(stopTimeout)):
		return errors.Join(fmt.Errorf("stop %s: it did not end within %v of SIGTERM", p.cmd.Path, Patience(stopTimeout)), p.Kill())
	}
}

// Kill ends the process with SIGKILL and waits.
func (p *Process) Kill() error {
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Signal sends a signal, unless the process has ended.
func (p *Process) Signal(s unix.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.cmd.Path, err)
	}
	return nil
}

// Buffer is a log that is written and read at the same time, from any goroutine. Its zero
// value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the log. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
