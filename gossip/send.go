package gossip

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/wire"
)

// send sends the messages that are due, and returns when one is due next, zero for never.
func (g *Gossip) send(now time.Time) time.Time {
	if g.out.waiting() >= maxBacklog {
		return now.Add(batchEvery)
	}
	for _, d := range g.queue.Due(nil, now, maxBacklog) {
		r, isRequest := d.Message.(*request)
		switch {
		case !d.GaveUp:
			if message := g.message(d.Message, d.Seq); message == nil {
				g.queue.Remove(d.To, d.Message.ID())
			} else if l, ok := message.(wire.Lease); ok && d.To == g.roster.Self() {
				g.keepOwn(d.Message.(lease.Message), l, now)
			} else {
				g.out.add(d.To, message, now)
			}
		case isRequest:
			g.requests--
			g.unanswered(r, now)
		}
	}
	return g.queue.Next()
}

// message returns what is sent for a message that waits in the queue, nil if that is not to be sent any more.
func (g *Gossip) message(waiting any, seq uint64) any {
	switch m := waiting.(type) {
	case lease.Message:
		l := wire.Lease{Seq: seq, Key: m.Key(), Gone: m.Gone, Binding: cluster.Binding{Holder: detector.Holder{ID: m.Holder()}}}
		if !m.Gone {
			l.Binding = brief(m.Binding)
			l.Binding.LastSeen = time.Time{}
		}
		return l
	case notice:
		return wire.Notice{Seq: seq, Key: m.Key, Others: m.Bindings, Total: m.Total}
	case end:
		if g.leases.Live(lease.ID{Key: m.key, Holder: m.holder}) {
			return nil // it has the address again
		}
		return wire.End{Seq: seq, Key: m.key, Holder: m.holder}
	case resend:
		return wire.Resend{Seq: seq}
	case *request:
		return wire.ProbeRequest{ID: seq, Key: m.probe.Key, Holder: m.probe.Holder, Others: m.bindings}
	case report:
		return m.wire(seq)
	}
	panic("unknown message")
}

// brief is what others need of a binding to compare it.
func brief(b cluster.Binding) cluster.Binding {
	b.Holder = detector.Holder{ID: b.Holder.ID, MAC: b.Holder.MAC}
	b.FoundAtStart = false
	return b
}

// keepOwn handles a lease of which this node itself is a keeper.
func (g *Gossip) keepOwn(m lease.Message, l wire.Lease, now time.Time) {
	self := g.roster.Self()
	if others, ok := g.keep(self, l, now); ok {
		g.queue.Acked(self, l.Seq)
		g.leases.Acked(self, m, now)
		if len(others.Bindings) > 0 {
			g.notified(others)
		}
	}
}
