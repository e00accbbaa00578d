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
	// Of the packets that wait, perBatch are sent at once, the next ones a batchEvery later: a storm is spread
	// over time, and the loop never stays away for long.
	perBatch   = 64
	batchEvery = 5 * time.Millisecond
	// maxWaiting bounds the packets that wait, maxBacklog those with which leases wait where they are.
	maxWaiting = 8192
	maxBacklog = 1024
)

// outbox gathers messages into packets and sends them.
type outbox struct {
	g *Gossip
	// open are the packets that have room, in the order in which they were begun.
	open  map[receiver]*parcel
	order []receiver
	since time.Time // when the first of them was begun
	// Probe requests, replies and notices go before leases, which have time.
	urgent, bulk []*parcel
	nextBatch    time.Time
}

type receiver struct {
	to     *roster.Node
	urgent bool
}

// parcel is a packet.
type parcel struct {
	receiver
	wire.Builder
	counts [wire.Kinds]int
}

func (o *outbox) init(g *Gossip) {
	o.g, o.open = g, make(map[receiver]*parcel)
}

// waiting returns the number of packets that wait.
func (o *outbox) waiting() int { return len(o.open) + len(o.urgent) + len(o.bulk) }

// add sends a message to a node that is not this one, soon.
func (o *outbox) add(to *roster.Node, message any, now time.Time) {
	k, encoded := wire.Encode(message, now)
	r := receiver{to, k != wire.KindLease && k != wire.KindReport}
	p := o.open[r]
	if p == nil {
		if o.waiting() >= maxWaiting {
			o.g.count.drop(dropOutbox)
			return
		}
		p = o.begin(r)
		if len(o.order) == 0 {
			o.since = now
		}
		o.order = append(o.order, r)
	}
	if !p.Add(k, encoded) {
		o.close(p)
		p = o.begin(r)
		p.Add(k, encoded)
	}
	p.counts[k]++
}

func (o *outbox) begin(r receiver) *parcel {
	p := &parcel{receiver: r, Builder: wire.Builder{Limit: transport.MaxPayload}}
	o.open[r] = p
	return p
}

func (o *outbox) close(p *parcel) {
	if p.urgent {
		o.urgent = append(o.urgent, p)
	} else {
		o.bulk = append(o.bulk, p)
	}
}

// due sends what is due and returns when something is due next, zero for never.
func (o *outbox) due(now time.Time) (next time.Time) {
	if len(o.order) > 0 && now.Sub(o.since) >= gatherFor {
		for _, r := range o.order {
			o.close(o.open[r])
			delete(o.open, r)
		}
		o.order = o.order[:0]
	}
	if len(o.urgent)+len(o.bulk) > 0 && !now.Before(o.nextBatch) {
		o.nextBatch = now.Add(batchEvery)
		o.sendBatch()
	}
	if len(o.order) > 0 {
		next = o.since.Add(gatherFor)
	}
	if len(o.urgent)+len(o.bulk) > 0 {
		next = earliest(next, o.nextBatch)
	}
	return next
}

func (o *outbox) sendBatch() {
	for range perBatch {
		queue := &o.urgent
		if len(*queue) == 0 {
			queue = &o.bulk
		}
		if len(*queue) == 0 {
			o.urgent, o.bulk = nil, nil
			return
		}
		p := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		err := o.g.network.Send(p.to.Incarnation, p.Bytes())
		for k, n := range p.counts {
			switch {
			case n == 0:
			case err != nil:
				o.g.count.dropN(dropSend, n)
			default:
				o.g.count.send(wire.Kind(k), n)
			}
		}
	}
}
