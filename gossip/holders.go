package gossip

import (
	"slices"
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
	// notice is a conflict notice of this keeper. It says what the keeper knows when it is sent.
	notice struct{ key detector.Key }
	// resend asks a node to send its leases again.
	resend struct{}
)

var noticePolicy = &retry.Policy{
	Pauses: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second},
	GiveUp: 30 * time.Second, Max: 32768, Urgent: true,
}

func (m notice) Identity() any         { return m }
func (m notice) Policy() *retry.Policy { return noticePolicy }
func (m resend) Identity() any         { return m }
func (m resend) Policy() *retry.Policy { return noticePolicy }

// resendEvery is how often a node may ask for its leases.
const resendEvery = 2 * time.Second

// Lease sends a binding of this node to the keepers of its address, now and at each refresh.
func (g *Gossip) Lease(l cluster.Lease) {
	g.in.call(func(now time.Time) {
		b := l.Binding
		if !g.own(l.Key, b.Holder.ID) || b.Evidence < detector.Claimed || b.Evidence > detector.Host {
			g.count.drop(dropInvalid)
		} else if !g.leases.Set(l.Key, b, now) {
			g.count.drop(dropLeases)
		}
	})
}

// Withdraw ends a lease. It informs the keepers and these other nodes, NodeIDs, that have holders of the address.
func (g *Gossip) Withdraw(key detector.Key, holder detector.HolderID, otherNodes []string) {
	g.in.call(func(now time.Time) {
		if !g.own(key, holder) {
			g.count.drop(dropInvalid)
			return
		}
		var others []*roster.Node
		for _, other := range otherNodes {
			if n := g.roster.ByID(other); n != nil && n.Alive() && n != g.roster.Self() {
				others = append(others, n)
			}
		}
		g.count.dropN(dropQueue, g.leases.Withdraw(lease.ID{Key: key, Holder: holder}, others, now))
	})
}

// own reports whether others accept a holder as one of this node.
func (g *Gossip) own(key detector.Key, h detector.HolderID) bool {
	return wire.ValidKey(key) && wire.ValidHolder(h) && h.Node == g.roster.Self().ID
}

// receiveLease handles a lease as its keeper, and notifies the nodes of other holders. The end of one is news for
// the holders here, too.
func (g *Gossip) receiveLease(from *roster.Node, l wire.Lease, now time.Time) {
	others, notify, refused := g.kept.Accept(from, l, now)
	for _, n := range notify {
		g.put(n, notice{l.Key}, now)
	}
	if refused != keeper.Accepted {
		g.count.drop(string(refused))
	}
	gone := cluster.ProbeReply{Probe: detector.Probe{Key: l.Key, Holder: l.Binding.Holder.ID}, Outcome: detector.Gone, At: now}
	switch {
	case refused != keeper.Accepted && refused != keeper.Overfull:
	case l.Gone && from != g.roster.Self() && g.leases.Has(l.Key) && !g.deliverOf(from, gone, now): // it is sent again
	default:
		g.ack(from, wire.Ack{Seq: l.Seq, Others: others.Others, Total: others.Total}, now)
	}
}

// receiveNotice handles a conflict notice of a keeper. Nobody else has a reason to send one.
func (g *Gossip) receiveNotice(from *roster.Node, m wire.Notice, now time.Time) {
	if g.leases.Has(m.Key) && !g.leases.Keeps(from, m.Key) {
		g.count.drop(dropNoKeeper)
		return
	}
	if g.receiveOthers(from, m, now) {
		g.ack(from, wire.Ack{Seq: m.Seq}, now)
	}
}

// receiveOthers handles other holders that a keeper reports, and reports whether there was room for them. Those of nodes that are not known
// yet it asks for again when they are.
func (g *Gossip) receiveOthers(from *roster.Node, n wire.Notice, now time.Time) (delivered bool) {
	if !g.leases.Has(n.Key) {
		g.count.drop(dropNoHolder)
		return true
	}
	m := cluster.ConflictNotice{Key: n.Key}
	for _, b := range n.Others {
		node := b.Holder.ID.Node
		switch other := g.roster.ByID(node); {
		case other == nil, other.State == cluster.Left: // it is asked for again when its agent is there
			g.count.drop(dropAbout)
			g.unknown.Get(node, func() *unknownNode { return new(unknownNode) }).add(n.Key)
		case other == g.roster.Self():
			// The keeper may know a holder of ours that is no more, or that is not yet leased under this
			// incarnation. We know better.
			g.count.drop(dropOurs)
		default:
			m.Bindings = append(m.Bindings, b)
		}
	}
	return len(m.Bindings) == 0 || g.deliverOf(from, m, now)
}

const (
	// Of twice so many nodes that are not known it is remembered that they have holders, and of so many addresses of each which ones.
	maxUnknown     = 512
	maxUnknownKeys = 64
)

// unknownNode are the addresses of which a node that is not known has holders, as keepers say.
type unknownNode struct {
	keys []detector.Key
	many bool // more than are remembered
}

func (u *unknownNode) add(key detector.Key) {
	switch {
	case slices.Contains(u.keys, key):
	case len(u.keys) < maxUnknownKeys:
		u.keys = append(u.keys, key)
	default:
		u.many = true
	}
}

// ask asks for the holders of a node that is known now: the keepers name them when they acknowledge leases.
func (g *Gossip) ask(n *roster.Node, now time.Time) {
	u := g.unknown.Get(n.ID, nil)
	switch {
	case u == nil:
		return
	case u.many:
		g.leases.Resend(nil, now)
	default:
		for _, key := range u.keys {
			g.leases.ResendKey(key, now)
		}
	}
	*u = unknownNode{}
}

// receiveResend handles the request of a keeper to send it all leases again.
func (g *Gossip) receiveResend(from *roster.Node, m wire.Resend, now time.Time) {
	if s := g.sender(from); now.Sub(s.resent) >= resendEvery {
		s.resent = now
		g.leases.Resend(from, now)
	}
	g.ack(from, wire.Ack{Seq: m.Seq}, now)
}
