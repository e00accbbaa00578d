package gossip

import (
	"time"

	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// put has a message sent to a node until it is acknowledged.
func (g *Gossip) put(to *roster.Node, m retry.Message, now time.Time) {
	if !g.queue.Put(to, m, 0, now) {
		g.count.drop(dropQueue)
	}
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
		message := g.message(d)
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
func (g *Gossip) message(d retry.Due) any {
	switch m := d.Message.(type) {
	case *lease.Lease:
		return wire.Lease{Seq: d.Seq, Key: m.Key, Gone: m.Gone, Binding: m.Binding}
	case notice:
		if others := g.kept.Others(d.To, m.key); len(others.Bindings) > 0 {
			return wire.Notice{Seq: d.Seq, Key: m.key, Others: others.Bindings, Total: others.Total}
		}
		return nil
	case end:
		if g.leases.Live(lease.ID(m)) {
			return nil // it has the address again
		}
		return wire.End{Seq: d.Seq, Key: m.Key, Holder: m.Holder}
	case resend:
		return wire.Resend{Seq: d.Seq}
	case *request:
		return wire.ProbeRequest{ID: d.Seq, Key: m.probe.Key, Holder: m.probe.Holder, Others: m.own}
	case *report:
		return wire.Report{Seq: d.Seq, Conflict: m.conflict, Summary: m.summary}
	}
	panic("unknown message")
}

// ack acknowledges a message.
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
			if delivered, _ := g.receiveOthers(from, m.Key, a.Others, a.Total, now); !delivered {
				return // it is sent again
			}
		}
		g.leases.Acked(from, m, now)
	default:
		g.queue.Remove(from, m.Identity())
	}
}
