package gossip

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/keeper"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// The messages about holders that must be acknowledged, beside leases.
type (
	// notice is a conflict notice of this keeper. A later one about the same address replaces it.
	notice   struct{ keeper.Others }
	noticeID detector.Key

	// end reports to a node that a holder of this node is gone.
	end struct {
		key    detector.Key
		holder detector.HolderID
	}

	// resend asks a node to send its leases again.
	resend struct{}
)

var (
	noticePolicy = retry.Policy{Pauses: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}, GiveUp: 30 * time.Second}
	endPolicy    = retry.Policy{Pauses: noticePolicy.Pauses, GiveUp: 10 * time.Second}
)

func (m notice) ID() any              { return noticeID(m.Key) }
func (m notice) Policy() retry.Policy { return noticePolicy }
func (m end) ID() any                 { return m }
func (m end) Policy() retry.Policy    { return endPolicy }
func (m resend) ID() any              { return m }
func (m resend) Policy() retry.Policy { return endPolicy }

// maxOthers bounds the nodes that are informed of the end of one holder.
const maxOthers = 64

// leaseChanged handles what the agent said of one of its leases.
func (g *Gossip) leaseChanged(c leaseChange, now time.Time) {
	switch {
	case !wire.ValidKey(c.key) || !wire.ValidHolder(c.holder):
		g.count.drop(dropInvalid)
	case c.holder.Node != g.roster.Self().ID:
		g.count.drop(dropForeign)
	case c.gone:
		g.leases.Withdraw(lease.ID{Key: c.key, Holder: c.holder}, now)
		g.sendEnds(c, now)
	case c.binding.Evidence < detector.Data || c.binding.Evidence > detector.Host:
		g.count.drop(dropEvidence)
	case !g.leases.Set(c.key, c.binding, now):
		g.count.drop(dropLeases)
	}
}

// sendEnds informs the nodes of other holders that a holder is gone.
func (g *Gossip) sendEnds(c leaseChange, now time.Time) {
	if n := len(c.others) - maxOthers; n > 0 {
		g.count.dropN(dropEnds, n)
		c.others = c.others[:maxOthers]
	}
	for _, id := range c.others {
		if n := g.roster.ByID(id); n != nil && n.Alive() && n != g.roster.Self() {
			g.queue.Put(n, end{c.key, c.holder}, now, now)
		}
	}
}

// receiveEnd handles the end of a holder of the sender.
func (g *Gossip) receiveEnd(from *roster.Node, m wire.End, now time.Time) {
	switch {
	case !g.peer(from).ends.AllowN(now, 1):
		g.count.drop(dropEndRate)
		return
	case !g.leases.Has(m.Key):
		g.count.drop(dropNoHolder)
	case !g.deliver(cluster.ProbeReply{
		Probe: detector.Probe{Key: m.Key, Holder: m.Holder}, Outcome: cluster.Gone, At: now,
	}):
		return // it is sent again
	}
	g.ack(from, m.Seq, now)
}

func (g *Gossip) ack(to *roster.Node, seq uint64, now time.Time) {
	g.out.add(to, wire.Ack{Seq: seq}, now)
}

// receiveLease handles a lease as its keeper.
func (g *Gossip) receiveLease(from *roster.Node, l wire.Lease, now time.Time) {
	if others, ok := g.keep(from, l, now); ok {
		g.out.add(from, wire.Ack{Seq: l.Seq, Others: others.Bindings, Total: others.Total}, now)
	}
}

// keep accepts a lease and notifies the nodes of other holders if there are any. It reports whether to acknowledge
// it.
func (g *Gossip) keep(from *roster.Node, l wire.Lease, now time.Time) (keeper.Others, bool) {
	others, notices, refused := g.kept.Accept(from, l, now)
	g.notify(notices, now)
	if refused != keeper.Accepted {
		g.count.drop(string(refused))
		return others, false
	}
	return others, true
}

// notify sends conflict notices.
func (g *Gossip) notify(notices []keeper.Notice, now time.Time) {
	for _, n := range notices {
		if n.To == g.roster.Self() {
			g.notified(n.Others)
		} else {
			g.queue.Put(n.To, notice{n.Others}, now, now)
		}
	}
}

// receiveAck handles an acknowledgement.
func (g *Gossip) receiveAck(from *roster.Node, a wire.Ack, now time.Time) {
	m, ok := g.queue.Acked(from, a.Seq)
	if !ok {
		return // it has changed since
	}
	l, ok := m.(lease.Message)
	if !ok {
		return
	}
	g.leases.Acked(from, l, now)
	if len(a.Others) > 0 && !l.Gone {
		g.receiveOthers(from, keeper.Others{Key: l.Key(), Bindings: a.Others, Total: a.Total}, now)
	}
}

// receiveNotice handles a conflict notice of a keeper. Nobody else has a reason to send one.
func (g *Gossip) receiveNotice(from *roster.Node, m wire.Notice, now time.Time) {
	if g.leases.Has(m.Key) && !g.leases.Keeps(from, m.Key) {
		g.count.drop(dropNoKeeper)
	} else if g.receiveOthers(from, keeper.Others{Key: m.Key, Bindings: m.Others, Total: m.Total}, now) {
		g.ack(from, m.Seq, now)
	}
}

// receiveOthers handles other holders that a keeper reports, and reports whether to acknowledge them.
func (g *Gossip) receiveOthers(from *roster.Node, others keeper.Others, now time.Time) bool {
	p := g.peer(from)
	if !p.notices.AllowN(now, 1) || !p.allowNotice(others.Key, now) {
		g.count.drop(dropNotices)
		return false
	}
	return g.notified(others)
}

// notified notifies the agent of other holders, as far as they are any.
func (g *Gossip) notified(others keeper.Others) bool {
	if !g.leases.Has(others.Key) {
		g.count.drop(dropNoHolder)
		return true
	}
	m := cluster.ConflictNotice{Key: others.Key, Total: others.Total}
	for _, b := range others.Bindings {
		switch g.roster.ByID(b.Holder.ID.Node) {
		case nil:
			g.count.drop(dropAbout)
		case g.roster.Self():
			// The keeper may know a holder of ours that is no more, or that is not yet leased under this
			// incarnation. We know better.
			g.count.drop(dropOurs)
		default:
			m.Bindings = append(m.Bindings, b)
		}
	}
	return len(m.Bindings) == 0 || g.deliver(m)
}

// resendEvery is how often a node may ask for its leases.
const resendEvery = 2 * time.Second

func (g *Gossip) receiveResend(from *roster.Node, m wire.Resend, now time.Time) {
	if p := g.peer(from); now.Sub(p.resent) >= resendEvery {
		p.resent = now
		g.leases.Resend(from, now)
	}
	g.ack(from, m.Seq, now)
}
