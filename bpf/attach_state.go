package bpf

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// State is the place of an attached program among the programs of its interface.
type State string

// The states.
const (
	Detached State = "detached" // it was removed, or the interface is gone
	Attached State = "attached" // it sees every packet first
	Shadowed State = "shadowed" // another program runs before it and may drop packets
)

// shadowedByXDP returns the state of a program that is first at its own hook: XDP of any kind, native,
// generic or offloaded, runs before tc. It reads the link if that is nil.
func shadowedByXDP(ifindex int, link netlink.Link) (State, error) {
	if link == nil {
		var err error
		if link, err = netlink.LinkByIndex(ifindex); err != nil {
			if errors.Is(classify(err), ErrGone) {
				return Detached, nil
			}
			return Detached, fmt.Errorf("query xdp: %w", err)
		}
	}
	if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
		return Shadowed, nil
	}
	return Attached, nil
}
