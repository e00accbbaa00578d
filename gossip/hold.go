package gossip

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/keeper"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// changeLease takes in what the agent said of one of its leases.
func (g *Gossip) changeLease(c leaseChange, now time.Time) {
	switch {
	case !sendable(c.key, c.holder):
		g.count.drop(dropInvalid)
	case c.holder.Node != g.roster.Self().ID:
		g.count.drop(dropForeign)
	case c.gone:
		g.leases.Withdraw(lease.ID{Key: c.key, Holder: c.holder}, now)
		g.tellGone(c, now)
	case c.claim.Evidence < detector.Data || c.claim.Evidence > detector.Host:
		g.count.drop(dropEvidence)
	case !g.leases.Set(c.key, c.claim, now):
		g.count.drop(dropLeases)
	}
}

// sendable says that others would take in what is said of a holder. They refuse a packet
// with one wrong entry as a whole.
func sendable(k detector.Key, h detector.HolderID) bool {
	return k.Network != "" && k.IP.IsValid() && !k.IP.IsUnspecified() && !k.IP.Is4In6() && k.IP.Zone() == "" && (h.Netns != 0) != (h.Ifindex != 0)
}

// leasesDue tells keepers what they are to know.
func (g *Gossip) leasesDue(now time.Time) time.Time {
	if g.out.waiting() >= maxBacklog {
		return now.Add(tick)
	}
	g.due = g.leases.Due(g.due[:0], now, maxBacklog)
	for _, s := range g.due {
		if s.To != g.roster.Self() {
			g.out.add(s.To, s.Lease, now)
		} else if g.keep(s.To, s.Lease, now) {
			g.leases.Acked(s.To, s.Lease.Seq, now)
		}
	}
	clear(g.due)
	return g.leases.Next()
}

func (g *Gossip) receiveAck(from *roster.Node, a wire.Ack, now time.Time) {
	g.leases.Acked(from, a.Seq, now)
}

// receiveLease takes in a lease as its keeper.
func (g *Gossip) receiveLease(from *roster.Node, l wire.Lease, now time.Time) {
	if g.keep(from, l, now) {
		g.out.add(from, wire.Ack{Seq: l.Seq}, now)
	}
}

// keep takes in a lease, tells the rivals if there are any, and says whether to acknowledge
// it.
func (g *Gossip) keep(from *roster.Node, l wire.Lease, now time.Time) bool {
	tells, refused := g.kept.Take(from, l, now)
	g.tellRivals(tells, now)
	if refused != keeper.Taken {
		g.count.drop(string(refused))
		return false
	}
	return true
}

// rivalsAgain is after what time rivals are told once more: nobody acknowledges them. maxAgain
// bounds those that wait for it.
const (
	rivalsAgain = time.Second
	maxAgain    = 4096
)

// again are rivals that are told once more at that time.
type again struct {
	tells []keeper.Tell
	at    time.Time
}

// tellRivals tells nodes of rivals, news twice.
func (g *Gossip) tellRivals(tells []keeper.Tell, now time.Time) {
	g.sendRivals(tells, now)
	if len(tells) > 0 && tells[0].News && len(g.again) < maxAgain {
		g.again = append(g.again, again{tells, now.Add(rivalsAgain)})
	}
}

func (g *Gossip) sendRivals(tells []keeper.Tell, now time.Time) {
	for _, t := range tells {
		if t.To == g.roster.Self() {
			g.rival(t.Rival, now)
		} else {
			g.out.add(t.To, t.Rival, now)
		}
	}
}

// keeperDue forgets what has expired, and tells again what is to be told twice.
func (g *Gossip) keeperDue(now time.Time) time.Time {
	g.kept.Expire(now)
	next := g.kept.Next()
	for len(g.again) > 0 && !g.again[0].at.After(now) {
		g.sendRivals(g.again[0].tells, now)
		g.again[0].tells = nil
		g.again = g.again[1:]
	}
	if len(g.again) > 0 {
		next = earliest(next, g.again[0].at)
	}
	return next
}

// receiveRival takes in what a keeper tells. Nobody else has a reason to.
func (g *Gossip) receiveRival(from *roster.Node, r wire.Rival, now time.Time) {
	p := g.peer(from)
	switch {
	case !p.rivals.AllowN(now, 1):
		g.count.drop(dropRivalRate)
	case !g.leases.Has(r.Key):
		g.count.drop(dropNoHolder)
	case !g.leases.Keeps(from, r.Key):
		g.count.drop(dropNoKeeper)
	case !p.allowRival(r.Key, now):
		g.count.drop(dropRivalRate)
	default:
		g.rival(r, now)
	}
}

// rival tells the agent of rivals, as far as they are any.
func (g *Gossip) rival(r wire.Rival, now time.Time) {
	if !g.leases.Has(r.Key) {
		g.count.drop(dropNoHolder)
		return
	}
	m := cluster.ConflictNotice{Key: r.Key, Total: r.Total}
	for _, c := range r.Claims {
		switch n := g.roster.Node(c.Holder.Member); n {
		case nil:
			g.count.drop(dropUnknown)
			g.network.Seek(c.Holder.Member)
		case g.roster.Self():
			// The keeper may know a holder of ours that is no more, or that is not yet
			// leased under this incarnation. We know better.
			g.count.drop(dropOurs)
		default:
			m.Bindings = append(m.Bindings, claimOf(n, c, now))
		}
	}
	if len(m.Bindings) > 0 {
		g.tell(m)
	}
}

// claimOf makes a claim of a node from what came over the wire at now.
func claimOf(n *roster.Node, c wire.Claim, now time.Time) cluster.Binding {
	return cluster.Binding{
		Holder:      detector.Holder{ID: holderOf(n, c.Holder), MAC: c.MAC},
		Evidence:    c.Evidence,
		FirstSeen:   now.Add(-c.FirstSeen),
		LastSeen:    now.Add(-c.LastSeen),
		Occurrences: c.Episodes,
	}
}

func holderOf(n *roster.Node, h wire.Holder) detector.HolderID {
	return detector.HolderID{Node: n.ID, Netns: h.Netns, Ifindex: h.Ifindex, Generation: h.Generation}
}

// wireHolder is a holder as it travels; member is its node's incarnation.
func wireHolder(member wire.MemberID, h detector.HolderID) wire.Holder {
	return wire.Holder{Member: member, Netns: h.Netns, Ifindex: h.Ifindex, Generation: h.Generation}
}

// wireClaims are the counting claims of this node as they travel.
func (g *Gossip) wireClaims(key detector.Key, claims []cluster.Binding, now time.Time) []wire.Claim {
	var list []wire.Claim
	for _, c := range claims {
		if c.Holder.ID.Node == g.roster.Self().ID && sendable(key, c.Holder.ID) &&
			c.Evidence >= detector.Data && c.Evidence <= detector.Host {
			list = append(list, g.wireClaim(c, now))
		}
	}
	return list
}

func (g *Gossip) wireClaim(c cluster.Binding, now time.Time) wire.Claim {
	return wire.Claim{
		Holder:    wireHolder(g.id, c.Holder.ID),
		MAC:       c.Holder.MAC,
		Evidence:  c.Evidence,
		FirstSeen: max(0, now.Sub(c.FirstSeen)),
		LastSeen:  max(0, now.Sub(c.LastSeen)),
		Episodes:  c.Occurrences,
	}
}
