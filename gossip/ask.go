package gossip

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// askFor is after what time a question is given up: the agent waits for two seconds.
	askFor = 1800 * time.Millisecond
	// maxAsks bounds the questions of this node that are under way.
	maxAsks = 4096
	// maxRivals bounds the nodes that are told of the end of one holder.
	maxRivals = 64
	// goneAgain is when they are told again: nobody acknowledges it.
	goneAgain = 300 * time.Millisecond
)

// askPauses are those after each sending of a question.
var askPauses = [...]time.Duration{150 * time.Millisecond, 300 * time.Millisecond, 550 * time.Millisecond, askFor}

// asks are the questions of this node that are under way, and the news of holders that are
// gone, which is told twice.
type asks struct {
	last  uint64
	open  map[uint64]*ask
	gones []gone // in order of time
}

// init begins to number anywhere: what a former agent of this node was answered must not
// pass for an answer to this one.
func (a *asks) init() {
	a.last, a.open = uint64(rand.Uint32()), make(map[uint64]*ask)
}

// ask is one question.
type ask struct {
	id           uint64
	solicitation detector.Probe
	claims       []cluster.Binding
	sent, next   time.Time
	tries        int
}

// gone is a withdrawal that is told once more at that time.
type gone struct {
	change leaseChange
	at     time.Time
}

// RequestProbe sends a probe request for a remote holder to its node, with this node's own holders. The
// reply is a [cluster.ProbeReply]; without one in time its outcome is Unreachable.
func (g *Gossip) RequestProbe(s detector.Probe, own []cluster.Binding) {
	own = slices.Clone(own)
	if !g.in.call(func() { g.ask(s, own, time.Now()) }) {
		g.unreachable(s, time.Now())
	}
}

func (g *Gossip) ask(s detector.Probe, own []cluster.Binding, now time.Time) {
	if len(g.asks.open) >= maxAsks {
		g.count.drop(dropAsks)
		g.unreachable(s, now)
		return
	}
	g.asks.last++
	a := &ask{id: g.asks.last, solicitation: s, claims: own, sent: now, next: now}
	g.asks.open[a.id] = a
	g.sendAsk(a, now)
}

// sendAsk sends a question to whichever incarnation is there now, or gives it up.
func (g *Gossip) sendAsk(a *ask, now time.Time) {
	to := g.roster.ByID(a.solicitation.Holder.Node)
	if to == nil || !to.Alive || !sendable(a.solicitation.Key, a.solicitation.Holder) || to == g.roster.Self() || now.Sub(a.sent) >= askFor {
		delete(g.asks.open, a.id)
		if g.roster.BootedAnew(a.solicitation.Holder.Node) {
			// Of its former boot nothing is left that could answer.
			g.tell(cluster.ProbeReply{
				Probe: a.solicitation, Outcome: cluster.Gone, At: now, Reason: "it was booted anew",
			})
		} else {
			g.unreachable(a.solicitation, now)
		}
		return
	}
	g.out.add(to, wire.Ask{
		ID: a.id, Key: a.solicitation.Key, Holder: wireHolder(to.Member, a.solicitation.Holder),
		Claims: g.wireClaims(a.solicitation.Key, a.claims, now),
	}, now)
	a.next = now.Add(askPauses[min(a.tries, len(askPauses)-1)])
	if limit := a.sent.Add(askFor); a.next.After(limit) {
		a.next = limit
	}
	a.tries++
}

// unreachable tells the agent that nobody answers for a holder.
func (g *Gossip) unreachable(s detector.Probe, now time.Time) {
	if n := g.roster.ByID(s.Holder.Node); n != nil {
		g.peer(n).silent = true
	}
	g.tell(cluster.ProbeReply{Probe: s, Outcome: cluster.Unreachable, At: now})
}

// asksDue asks again, gives up, and forgets what was answered long ago.
func (g *Gossip) asksDue(now time.Time) time.Time {
	var next time.Time
	for _, a := range g.asks.open {
		if !a.next.After(now) {
			g.sendAsk(a, now)
		}
		if _, open := g.asks.open[a.id]; open {
			next = earliest(next, a.next)
		}
	}
	for len(g.asks.gones) > 0 && !g.asks.gones[0].at.After(now) {
		c := g.asks.gones[0].change
		g.asks.gones = g.asks.gones[1:]
		// It may have the address again.
		if !g.leases.Live(lease.ID{Key: c.key, Holder: c.holder}) {
			g.sendGone(c, now)
		}
	}
	if len(g.asks.gones) > 0 {
		next = earliest(next, g.asks.gones[0].at)
	}
	return earliest(next, g.questions.expire(now))
}

// tellGone tells the nodes of the rivals that a holder is gone, twice.
func (g *Gossip) tellGone(c leaseChange, now time.Time) {
	if len(c.rivals) == 0 {
		return
	}
	if len(c.rivals) > maxRivals {
		g.count.dropN(dropGones, len(c.rivals)-maxRivals)
		c.rivals = c.rivals[:maxRivals]
	}
	g.sendGone(c, now)
	if len(g.asks.gones) >= maxAsks {
		g.count.drop(dropGones)
		return
	}
	g.asks.gones = append(g.asks.gones, gone{c, now.Add(goneAgain)})
}

func (g *Gossip) sendGone(c leaseChange, now time.Time) {
	v := wire.Verified{Key: c.key, Outcome: cluster.Gone, Claim: wire.Claim{Holder: wireHolder(g.id, c.holder)}}
	for _, id := range c.rivals {
		if n := g.roster.ByID(id); n != nil && n.Alive && n != g.roster.Self() {
			g.out.add(n, v, now)
		}
	}
}

// receiveVerified takes in an answer, or that a holder is gone. Only a holder's own node
// speaks for it, so nothing but the sender's holders can be meant.
func (g *Gossip) receiveVerified(from *roster.Node, v wire.Verified, now time.Time) {
	holder := holderOf(from, v.Claim.Holder)
	if v.ID == 0 {
		switch {
		case !g.leases.Has(v.Key):
			g.count.drop(dropNoHolder)
		case !g.peer(from).gone.AllowN(now, 1):
			g.count.drop(dropGoneRate)
		default:
			g.tell(cluster.ProbeReply{
				Probe:   detector.Probe{Key: v.Key, Holder: holder},
				Outcome: cluster.Gone, At: now,
			})
		}
		return
	}
	a := g.asks.open[v.ID]
	if a == nil || a.solicitation.Key != v.Key || a.solicitation.Holder != holder {
		g.count.drop(dropUnasked) // or answered already
		return
	}
	delete(g.asks.open, v.ID)
	t := cluster.ProbeReply{Probe: a.solicitation, Outcome: v.Outcome, At: now, Reason: v.Reason}
	switch v.Outcome {
	case cluster.Answered:
		// Clocks of two nodes do not run alike: no answer is older than its question.
		if t.At = now.Add(-v.Answer); t.At.Before(a.sent) {
			t.At = a.sent
		}
	case cluster.Refused:
		if v.Retry > 0 {
			t.RetryAt = now.Add(v.Retry)
		}
	}
	unclaimed := v.Claim.Evidence <= detector.Forwarded && v.Claim.MAC == detector.MAC{} && v.Details == wire.Details{}
	if v.Outcome != cluster.Gone && !unclaimed {
		t.Binding = claimOf(from, v.Claim, now)
		v.Details.Describe(&t.Binding.Holder, now)
		t.Binding.FoundAtStart = v.Details.FoundAtStart
	}
	g.tell(t)
}
