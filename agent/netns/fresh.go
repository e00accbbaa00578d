package netns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// DoInNew is [Do] inside a netns that is made for it and is gone, with all devices in it,
// when fn has returned and closed its sockets. Goroutines that fn starts are not in it.
func DoInNew(fn func() error) error {
	return do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a netns (needs CAP_SYS_ADMIN): %w", err)
		}
		return nil
	}, fn)
}
