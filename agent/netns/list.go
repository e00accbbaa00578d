package netns

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// listTries is how often an interrupted list is read.
const listTries = 3

// List calls a function that lists things over netlink until the kernel did not have
// to interrupt it because they changed meanwhile; such a list has holes. After some
// attempts the error is [netlink.ErrDumpInterrupted]. Errors say what was listed.
func List[T any](what string, list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range listTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("listing %s: %w", what, err)
	}
	return all, err
}
