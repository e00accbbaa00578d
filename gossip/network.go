package gossip

import (
	"context"

	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

// Network is what carries packets between members and knows who they are: a
// [members.Members], where its methods are described, or a simulation. Its methods are
// safe for concurrent use. It tells a [members.Handler] what it hears; neither calls the
// other with a lock in hand.
type Network interface {
	// Run takes part until ctx ends, and leaves in order.
	Run(ctx context.Context) error
	// Send sends a packet to another member, which may lose it. It does not wait for the
	// member and does not keep the packet.
	Send(to wire.MemberID, packet []byte) error
	// Broadcast tells a packet to all members, sooner or later; a later one with the same
	// key takes the place of one that waits. It does not keep the packet.
	Broadcast(key string, packet []byte)
	// Seek tells that a member was heard, or named, that is taken for dead or not known.
	Seek(id wire.MemberID)
	// List returns the members that are there or were, this one among them, by node name.
	List() []members.Member
	// Status says how the membership is doing.
	Status() members.Status
}

// openMembers is the real network.
func openMembers(opts members.Options) (Network, error) {
	m, err := members.Open(opts)
	if err != nil {
		return nil, err // not a Network that is nil
	}
	return m, nil
}
