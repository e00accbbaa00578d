package netns

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// listTries is how often an interrupted list is read.
const listTries = 3

// List calls a function that lists things over netlink until the kernel did not have
// to interrupt it because they changed meanwhile; such a list has holes. After some
// attempts it returns [netlink.ErrDumpInterrupted].
func List[T any](list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range listTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
