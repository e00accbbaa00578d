package lab

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Launch starts a command inside the netns. It has a process group of its own: Ctrl-C is for
// us, and the caller ends it in order. Should we be killed, the kernel ends it. When it has
// ended, ended gets what [exec.Cmd.Wait] returns, once and on another goroutine; that does
// not happen if Launch returns an error.
func (n *Netns) Launch(cmd *exec.Cmd, ended func(error)) error {
	return launch(cmd, func() error { return n.Start(cmd) }, ended)
}

// launch is Launch for a start of the caller's own, which runs on a thread that nobody uses
// afterwards.
func launch(cmd *exec.Cmd, start func() error, ended func(error)) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, unix.SIGKILL
	started := make(chan error, 1)
	go func() {
		// Pdeathsig is about the death of the thread that started the child, so it stays
		// here until the child has ended. It is never unlocked, and ends with the goroutine.
		runtime.LockOSThread()
		err := start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}
