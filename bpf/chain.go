package bpf

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// State is where an attached program stands among the programs of its interface.
type State uint8

// The states.
const (
	// Detached: ours is not there; it was removed, or the interface is gone.
	Detached State = iota
	// Attached: ours sees every packet first.
	Attached
	// Shadowed: ours is there, but another program runs before it and may swallow packets.
	Shadowed
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Detached:
		return "detached"
	case Attached:
		return "attached"
	case Shadowed:
		return "shadowed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// shadowedByXDP is the last question for a program that is first at its own hook: XDP of any kind,
// native, generic or offloaded, runs before tc. A link of nil is asked for.
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
