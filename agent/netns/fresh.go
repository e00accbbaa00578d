package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// DoInNew runs fn on a locked thread inside a netns that is made for it and is gone, with
// all devices in it, when fn has returned and closed its sockets. Goroutines that fn
// starts are not in it. Errors of fn are returned as they are.
func DoInNew(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := os.Open(Self)
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("opening own netns: %w", err)
			return
		}
		defer back.Close()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("making a netns (needs CAP_SYS_ADMIN): %w", err)
			return
		}
		err = fn()
		if backErr := unix.Setns(int(back.Fd()), unix.CLONE_NEWNET); backErr != nil {
			// Still locked: the runtime ends the thread with this goroutine.
			result <- errors.Join(err, fmt.Errorf("leaving a netns of our own: %w", backErr))
			return
		}
		runtime.UnlockOSThread()
		result <- err
	}()
	return <-result
}
