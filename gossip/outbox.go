package gossip

import (
	"time"

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

	_ = uint(transport.MaxPayload - wire.MaxPacket) // every packet fits a datagram
)

// outbox gathers messages into packets and sends them, in the order in which they were begun.
type outbox struct {
	g         *Gossip
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
func (o *outbox) add(to *roster.Node, message wire.Message, now time.Time) {
	k, encoded := wire.Encode(message, now)
	if p := o.open[to]; p != nil && p.Add(k, encoded) {
		return
	}
	if len(o.packets) >= maxWaiting {
		o.g.count.drop(dropOutbox)
		return
	}
	p := &packet{to: to, due: now.Add(gatherFor)}
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

// put has a message sent to a node until it is acknowledged, and reports whether there was room for it.
func (g *Gossip) put(to *roster.Node, m retry.Message, now time.Time) (ok bool) {
	if ok = g.queue.Put(to, m, 0, now); !ok {
		g.count.drop(dropQueue)
	}
	return ok
}

// send sends the messages that are due, and returns when one is due next, zero for never.
func (g *Gossip) send(now time.Time) time.Time {
	if len(g.out.packets) >= maxBacklog {
		return now.Add(batchEvery)
	}
	for _, d := range g.queue.Due(now, maxBacklog) {
		if d.GaveUp {
			g.unanswered(d.Message, now)
			continue
		}
		message := g.message(d, now)
		own, _ := message.(wire.Lease)
		switch {
		case message == nil:
			g.queue.Remove(d.To, d.Message.Identity())
		case d.To != g.roster.Self():
			g.out.add(d.To, message, now)
		case own.Seq != 0:
			g.receiveLease(d.To, own, now)
		default:
			g.receiveNotice(d.To, message.(wire.Notice), now)
		}
	}
	return g.queue.Next()
}

// message returns what is sent for a message that waits in the queue, nil if that is not to be sent any more.
func (g *Gossip) message(d retry.Due, now time.Time) wire.Message {
	switch m := d.Message.(type) {
	case *lease.Lease:
		if m.Gone && g.leases.Live(m.ID) {
			return nil // the holder has the address again
		}
		return wire.Lease{Seq: d.Seq, Key: m.Key, Gone: m.Gone, Binding: m.Binding}
	case notice:
		if n := g.kept.Others(d.To, m.key); len(n.Others) > 0 {
			n.Seq = d.Seq
			return n
		}
		return nil
	case resend:
		return wire.Resend{Seq: d.Seq}
	case *request:
		return wire.ProbeRequest{ID: d.Seq, Key: m.probe.Key, Holder: m.probe.Holder, Others: m.own}
	case *report:
		if m.summary != nil {
			return wire.Report{Seq: d.Seq, Summary: m.summary}
		}
		conflict, err := m.encode(now, wire.MaxReport)
		if err != nil {
			g.log.Warn("a conflict cannot be reported; \"dupip conflicts\" has it", "ip", m.key.IP, "error", err)
			return nil
		}
		return wire.Report{Seq: d.Seq, Conflict: conflict}
	}
	panic("unknown message")
}

// ack acknowledges a message, also one of this node to itself.
func (g *Gossip) ack(to *roster.Node, a wire.Ack, now time.Time) {
	if to == g.roster.Self() {
		g.receiveAck(to, a, now)
	} else {
		g.out.add(to, a, now)
	}
}

// receiveAck handles an acknowledgement. That of a probe request is its reply.
func (g *Gossip) receiveAck(from *roster.Node, a wire.Ack, now time.Time) {
	switch m := g.queue.Waiting(from, a.Seq).(type) {
	case nil, *request: // it has changed since
	case *lease.Lease:
		if len(a.Others) > 0 && !m.Gone {
			if !g.receiveOthers(from, wire.Notice{Key: m.Key, Others: a.Others}, now) {
				return // it is sent again
			}
		}
		g.leases.Acked(from, m, now)
	default:
		g.queue.Remove(from, m.Identity())
	}
}
