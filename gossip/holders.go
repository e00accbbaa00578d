package gossip

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/keeper"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/recent"
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

// holders has the leases of this node, those that it keeps for all nodes, and the notices of keepers. It must not know what two holders of
// an address are.
type holders struct {
	roster  *roster.Roster
	peers   *peers
	post    *post
	count   *counters
	leases  *lease.Table                    // this node's
	kept    *keeper.Table                   // everybody's
	unknown recent.Map[string, unknownNode] // by NodeID: holders of nodes that are not known
}

// lease leases a binding of this node to the keepers of its address.
func (h *holders) lease(l cluster.Lease, now time.Time) {
	b := l.Binding
	if !h.own(l.Key, b.Holder.ID) || b.Evidence < detector.Claimed || b.Evidence > detector.Host {
		h.count.drop(dropInvalid)
	} else if !h.leases.Set(l.Key, b, now) {
		h.count.drop(dropLeases)
	}
}

// withdraw ends a lease.
func (h *holders) withdraw(id lease.ID, otherNodes []string, now time.Time) {
	if !h.own(id.Key, id.Holder) {
		h.count.drop(dropInvalid)
		return
	}
	var others []*roster.Node
	for _, other := range otherNodes {
		if n := h.roster.ByID(other); n != nil && n.Alive() && n != h.roster.Self() {
			others = append(others, n)
		}
	}
	h.count.dropN(dropQueue, h.leases.Withdraw(id, others, now))
}

// own reports whether others accept a holder as one of this node.
func (h *holders) own(key detector.Key, id detector.HolderID) bool {
	return wire.ValidKey(key) && wire.ValidHolder(id) && id.Node == h.roster.Self().ID
}

// receiveLease handles a lease as its keeper, and notifies the nodes of other holders. The end of one is news for
// the holders here, too.
func (h *holders) receiveLease(from *roster.Node, l wire.Lease, now time.Time) wire.Message {
	others, notify, refused := h.kept.Accept(from, l, now)
	for _, n := range notify {
		h.post.put(n, notice{l.Key}, now)
	}
	if refused != keeper.Accepted {
		h.count.drop(string(refused))
	}
	gone := cluster.ProbeReply{Probe: detector.Probe{Key: l.Key, Holder: l.Binding.Holder.ID}, Outcome: detector.Gone, At: now}
	switch {
	case !refused.Handled():
		return nil
	case l.Gone && from != h.roster.Self() && h.leases.Has(l.Key) && !h.peers.deliverOf(from, gone, now):
		return nil // it is sent again
	default:
		return wire.Ack{Seq: l.Seq, Others: others.Others, Total: others.Total}
	}
}

// receiveNotice handles a conflict notice of a keeper. Nobody else has a reason to send one.
func (h *holders) receiveNotice(from *roster.Node, m wire.Notice, now time.Time) wire.Message {
	if h.leases.Has(m.Key) && !h.leases.Keeps(from, m.Key) {
		h.count.drop(dropNoKeeper)
		return nil
	}
	if !h.receiveOthers(from, m, now) {
		return nil
	}
	return wire.Ack{Seq: m.Seq}
}

// receiveOthers handles other holders that a keeper reports, and reports whether there was room for them. Those of nodes that are not known
// yet it asks for again when they are.
func (h *holders) receiveOthers(from *roster.Node, n wire.Notice, now time.Time) (delivered bool) {
	if !h.leases.Has(n.Key) {
		h.count.drop(dropNoHolder)
		return true
	}
	m := cluster.ConflictNotice{Key: n.Key}
	for _, b := range n.Others {
		node := b.Holder.ID.Node
		switch other := h.roster.ByID(node); {
		case other == nil, other.State == cluster.Left: // it is asked for again when its agent is there
			h.count.drop(dropAbout)
			h.unknown.Get(node, func() *unknownNode { return new(unknownNode) }).add(n.Key)
		case other == h.roster.Self():
			// The keeper may know a holder of ours that is no more, or that is not yet leased under this
			// incarnation. We know better.
			h.count.drop(dropOurs)
		default:
			m.Bindings = append(m.Bindings, b)
		}
	}
	return len(m.Bindings) == 0 || h.peers.deliverOf(from, m, now)
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
func (h *holders) ask(n *roster.Node, now time.Time) {
	u := h.unknown.Get(n.ID, nil)
	switch {
	case u == nil:
		return
	case u.many:
		h.leases.Resend(nil, now)
	default:
		for _, key := range u.keys {
			h.leases.ResendKey(key, now)
		}
	}
	*u = unknownNode{}
}

// receiveResend handles the request of a keeper to send it all leases again.
func (h *holders) receiveResend(from *roster.Node, m wire.Resend, now time.Time) wire.Message {
	if s := h.peers.of(from); now.Sub(s.resent) >= resendEvery {
		s.resent = now
		h.leases.Resend(from, now)
	}
	return wire.Ack{Seq: m.Seq}
}

// receiveAck handles the acknowledgement of a lease: its keeper names the other holders.
func (h *holders) receiveAck(from *roster.Node, l *lease.Lease, a wire.Ack, now time.Time) {
	if len(a.Others) > 0 && !l.Gone && !h.receiveOthers(from, wire.Notice{Key: l.Key, Others: a.Others}, now) {
		return // it is sent again
	}
	h.leases.Acked(from, l, now)
}
