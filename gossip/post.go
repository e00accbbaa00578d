package gossip

import (
	"cmp"
	"context"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// gatherFor is how long messages for one receiver wait for others.
	gatherFor = 3 * time.Millisecond
	// Of the packets that are due, perBatch are sent at once, the next ones a batchEvery later: a storm is spread
	// over time, and the loop never stays away for long.
	perBatch   = 64
	batchEvery = 5 * time.Millisecond
	// maxWaiting bounds the packets that wait, maxBacklog those with which messages wait where they are, and
	// urgent ones first.
	maxWaiting = 8192
	maxBacklog = 256

	// A node that has not acknowledged so many messages, or one so often, for so long is suspect.
	suspectTries = 3
	suspectAfter = 3 * time.Second
	// lateAfter is after what time a keeper that did not acknowledge is worth a problem.
	lateAfter = 5 * time.Second

	_ = uint(transport.MaxPayload - wire.MaxPacket) // every packet fits a datagram
)

// Network is what carries messages between members and knows who they are: a [members.Members], where its methods
// are described, or a simulation. Its methods are safe for concurrent use. It calls a [members.Handler], but not
// before Send or Rejoin return, which are called with a lock held.
type Network interface {
	Run(ctx context.Context) error
	LeaveSoon()
	Send(to wire.MemberID, payload []byte) error
	Request(ctx context.Context, to wire.MemberID, request []byte, reading chan struct{}, use func(reply []byte) error) error
	Rejoin()
	Status() cluster.Status
	// Cut is when nobody answered this node for a minute or more the last time; zero if that never was.
	Cut() (from, until time.Time)
}

// post sends messages to other nodes: those that must be acknowledged again and again, and all of them gathered into packets, in the
// order in which these were begun. It must not know what the messages say, but for which of them are
// leases.
type post struct {
	*retry.Queue
	count   *counters
	network Network

	open      map[*roster.Node]*packet // those that have room
	packets   []*packet
	nextBatch time.Time
}

// packet is one that is being filled, or waits to be sent.
type packet struct {
	wire.Builder
	to  *roster.Node
	due time.Time
}

// add sends a message to a node that is not this one, soon.
func (o *post) add(to *roster.Node, message wire.Message, now time.Time) {
	k, encoded := wire.Encode(message, now)
	if p := o.open[to]; p != nil && p.Add(k, encoded) {
		return
	}
	if len(o.packets) >= maxWaiting {
		o.count.drop(dropOutbox)
		return
	}
	p := &packet{to: to, due: now.Add(gatherFor), Builder: wire.Builder{Packs: to.Packs}}
	p.Add(k, encoded)
	o.open[to] = p
	o.packets = append(o.packets, p)
}

// flush sends the packets that are due and returns when something is due next, zero for never.
func (o *post) flush(now time.Time) (next time.Time) {
	if now.Before(o.nextBatch) {
		return o.nextBatch
	}
	for range perBatch {
		if len(o.packets) == 0 {
			return time.Time{}
		}
		p := o.packets[0]
		if now.Before(p.due) {
			return p.due
		}
		o.packets[0] = nil
		o.packets = o.packets[1:]
		if o.open[p.to] == p {
			delete(o.open, p.to)
		}
		var err error
		for _, b := range p.Packets() {
			err = cmp.Or(err, o.network.Send(p.to.Incarnation, b))
		}
		for k, n := range p.Counts {
			if err != nil {
				o.count.dropN(dropSend, n)
			} else {
				o.count.send(wire.Kind(k), n)
			}
		}
	}
	o.nextBatch = now.Add(batchEvery)
	return o.nextBatch
}

// put has a message sent to a node until it is acknowledged, and reports whether there was room for it.
func (o *post) put(to *roster.Node, m retry.Message, now time.Time) (ok bool) {
	if ok = o.Put(to, m, 0, now); !ok {
		o.count.drop(dropQueue)
	}
	return ok
}

// unacked counts the leases that are not acknowledged for more than a few seconds, in all and by keeper, and returns
// the nodes that are suspect.
func (o *post) unacked(self *roster.Node, now time.Time) (leases int, by map[*roster.Node]int, suspect map[*roster.Node]bool) {
	by, suspect = make(map[*roster.Node]int), make(map[*roster.Node]bool)
	tries, late := make(map[*roster.Node]int), make(map[lease.ID]bool)
	o.Late(suspectAfter, now, func(to *roster.Node, m retry.Message, n int, since time.Time) {
		if tries[to] += n; tries[to] >= suspectTries && to != self {
			suspect[to] = true
		}
		if l, ok := m.(*lease.Lease); ok && !l.Gone && now.Sub(since) > lateAfter {
			by[to]++
			late[l.ID] = true
		}
	})
	return len(late), by, suspect
}
