package gossip

import (
	"time"

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

	_ = uint(transport.MaxPayload - wire.MaxPacket) // every packet fits a datagram
)

// outbox gathers messages into packets and sends them, in the order in which they were begun.
type outbox struct {
	g         *Gossip
	open      map[*roster.Node]*parcel // those of the packets that have room
	packets   []*parcel
	nextBatch time.Time
}

// parcel is a packet.
type parcel struct {
	wire.Builder
	to  *roster.Node
	due time.Time
}

// add sends a message to a node that is not this one, soon.
func (o *outbox) add(to *roster.Node, message any, now time.Time) {
	k, encoded := wire.Encode(message, now)
	if p := o.open[to]; p != nil && p.Add(k, encoded) {
		return
	}
	if len(o.packets) >= maxWaiting {
		o.g.count.drop(dropOutbox)
		return
	}
	p := &parcel{to: to, due: now.Add(gatherFor)}
	p.Add(k, encoded)
	o.open[to] = p
	o.packets = append(o.packets, p)
}

// send sends what is due and returns when something is due next, zero for never.
func (o *outbox) send(now time.Time) (next time.Time) {
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
		err := o.g.network.Send(p.to.Incarnation, p.Bytes())
		for k, n := range p.Counts {
			if err != nil {
				o.g.count.dropN(dropSend, n)
			} else {
				o.g.count.send(wire.Kind(k), n)
			}
		}
	}
	o.nextBatch = now.Add(batchEvery)
	return o.nextBatch
}
