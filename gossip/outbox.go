package gossip

import (
	"time"

	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// gatherFor is how long entries for one receiver wait for others.
	gatherFor = 3 * time.Millisecond
	// Of the packets that wait, perTick are sent at once, the next ones a tick later: a
	// storm is spread over time, and the loop never stays away for long.
	perTick = 64
	tick    = 5 * time.Millisecond
	// maxWaiting bounds the packets that wait, maxBacklog those with which leases wait
	// where they are.
	maxWaiting = 8192
	maxBacklog = 1024
)

// outbox gathers entries into packets and sends them.
type outbox struct {
	g *Gossip
	// open are the packets that have room, in the order in which they were begun.
	open  map[dest]*parcel
	order []dest
	since time.Time // when the first of them was begun
	// Answers and questions go before leases, which have time.
	urgent, bulk []*parcel
	nextTick     time.Time
}

type dest struct {
	to *roster.Node
	t  wire.Type
}

// parcel is a packet with n entries.
type parcel struct {
	dest
	packet []byte
	n      int
}

func (o *outbox) init(g *Gossip) {
	o.g, o.open = g, make(map[dest]*parcel)
}

// waiting returns the number of packets that wait.
func (o *outbox) waiting() int { return len(o.open) + len(o.urgent) + len(o.bulk) }

// add sends an entry to a node that is not this one, soon.
func (o *outbox) add(to *roster.Node, e wire.Entry, now time.Time) {
	d := dest{to, e.Type()}
	p := o.open[d]
	if p == nil {
		if o.waiting() >= maxWaiting {
			o.g.count.drop(dropOutbox)
			return
		}
		p = o.begin(d)
		o.open[d] = p
		if len(o.order) == 0 {
			o.since = now
		}
		o.order = append(o.order, d)
	}
	n := len(p.packet)
	p.packet = e.Append(p.packet)
	p.n++
	if len(p.packet) <= wire.MaxPacket || p.n == 1 {
		return
	}
	// It is the first of the next packet.
	next := o.begin(d)
	next.packet, next.n = append(next.packet, p.packet[n:]...), 1
	p.packet, p.n = p.packet[:n], p.n-1
	o.close(p)
	o.open[d] = next
}

func (o *outbox) begin(d dest) *parcel {
	return &parcel{dest: d, packet: wire.AppendHeader(nil, wire.Header{Type: d.t, Sender: o.g.id})}
}

func (o *outbox) close(p *parcel) {
	if p.t == wire.TypeLease || p.t == wire.TypeAnswer {
		o.bulk = append(o.bulk, p)
	} else {
		o.urgent = append(o.urgent, p)
	}
}

// due sends what is due and returns when something is due next, zero for never.
func (o *outbox) due(now time.Time) time.Time {
	if len(o.order) > 0 && now.Sub(o.since) >= gatherFor {
		for _, d := range o.order {
			o.close(o.open[d])
			delete(o.open, d)
		}
		o.order = o.order[:0]
	}
	if len(o.urgent)+len(o.bulk) > 0 && !now.Before(o.nextTick) {
		o.nextTick = now.Add(tick)
		o.urgent, o.bulk = o.send(o.urgent, o.bulk)
	}
	var next time.Time
	if len(o.order) > 0 {
		next = o.since.Add(gatherFor)
	}
	if len(o.urgent)+len(o.bulk) > 0 {
		next = earliest(next, o.nextTick)
	}
	return next
}

// send sends the packets of one tick and returns those that are left.
func (o *outbox) send(urgent, bulk []*parcel) (_, _ []*parcel) {
	for range perTick {
		var p *parcel
		switch {
		case len(urgent) > 0:
			p, urgent = urgent[0], urgent[1:]
		case len(bulk) > 0:
			p, bulk = bulk[0], bulk[1:]
		default:
			return nil, nil
		}
		if err := o.g.network.Send(p.to.Member, p.packet); err != nil {
			o.g.count.dropN(dropSend, p.n)
			continue
		}
		o.g.count.send(p.t, p.n)
	}
	return urgent, bulk
}
