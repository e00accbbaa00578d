// Package netns scans network namespaces: their identity, their devices and addresses, and which of
// them is behind a host interface. It knows nothing of packets, conflicts or pods.
//
// It opens a namespace for one scan and closes it again: an open descriptor would keep the netns of a
// deleted pod, and so its veth, alive.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Self is the path of the calling thread's netns.
const Self = "/proc/thread-self/ns/net"

// Other goroutines must not run on the main thread: it is the one whose netns /proc/PID/ns/net shows, and the runtime never ends it.
func init() { runtime.LockOSThread() }

// Do runs fn on a locked thread inside the netns that file refers to. A thread that cannot return to
// its own netns ends with its goroutine, so no other code runs in the wrong one. Errors of fn are not
// wrapped.
func Do(file *os.File, fn func() error) error {
	return do("entering netns "+file.Name(), func() error { return unix.Setns(int(file.Fd()), unix.CLONE_NEWNET) }, fn)
}

// DoInNew runs fn like [Do], inside a new netns. The netns ends with all its devices when fn has returned
// and closed its sockets. Goroutines that fn starts do not run in it.
func DoInNew(fn func() error) error {
	return do("making a netns (needs CAP_SYS_ADMIN)", func() error { return unix.Unshare(unix.CLONE_NEWNET) }, fn)
}

// do runs fn like [Do], after enter has entered the netns, which errors of enter call what.
func do(what string, enter, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := unix.Open(Self, unix.O_RDONLY|unix.O_CLOEXEC, 0) // os.Open makes four more system calls
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("opening own netns: %w", err)
			return
		}
		defer unix.Close(back)
		if err := enter(); err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("%s: %w", what, err)
			return
		}
		err = fn()
		if backErr := unix.Setns(back, unix.CLONE_NEWNET); backErr != nil {
			// Still locked: the runtime ends the thread with this goroutine.
			result <- errors.Join(err, fmt.Errorf("returning to own netns: %w", backErr))
			return
		}
		runtime.UnlockOSThread()
		result <- err
	}()
	return <-result
}

// CanEnter returns an error if this process may not enter namespaces. The error names what is missing.
func CanEnter() error {
	self, err := os.Open(Self)
	if err != nil {
		return fmt.Errorf("opening own netns (is /proc mounted?): %w", err)
	}
	defer self.Close()
	if err := Do(self, func() error { return nil }); err != nil {
		return fmt.Errorf("entering network namespaces (needs CAP_SYS_ADMIN): %w", err)
	}
	return nil
}

// Open opens the netns at path. The path may be anything, and lead to something else a moment later: opening with O_PATH
// (open(2)) neither blocks nor has side effects.
func Open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("finding netns %s: %w", path, err)
	}
	defer unix.Close(fd)
	found := fmt.Sprintf("/proc/self/fd/%d", fd)
	if !IsNamespace(found) {
		return nil, fmt.Errorf("finding netns %s: %w", path, errNoNamespace)
	}
	opened, err := unix.Open(found, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening netns %s: %w", path, err)
	}
	return os.NewFile(uintptr(opened), path), nil
}
