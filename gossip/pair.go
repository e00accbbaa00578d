package gossip

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// pairPause is the least time between two broadcasts of one pair, pairRefresh how often
	// what does not change is told again, pairTime how long it is believed.
	pairPause   = 10 * time.Second
	pairRefresh = 60 * time.Second
	pairTime    = 180 * time.Second
	// maxPairs bounds this node's pairs, and those of others.
	maxPairs = 1000
	// All pairs of this node are broadcast, and those of others passed on, at most so many
	// at once and so many per second: a prefix that all nodes share stays cheap.
	pairRate, pairBurst   = 2, 20
	relayRate, relayBurst = 10, 50
	// pairTick is how often expired pairs are looked for.
	pairTick = 10 * time.Second

	maxExamples = 3
)

const (
	dropPair  = "pair of other nodes"
	dropPairs = "too many pairs"
	dropRelay = "pair not passed on"
)

// pairs are the pairs of nodes that share addresses.
type pairs struct {
	own   map[pairID]*ownPair
	heard map[pairID]*heardPair
	seq   uint64 // of the last that was told

	telling, relaying *rate.Limiter
	// due is when a pair is to be told, zero when that has to be found out; tidied is when
	// expired ones were looked for.
	due    time.Time
	tidied time.Time
}

// pairID is two NodeIDs, a the lesser one.
type pairID struct{ a, b string }

// pairName is what one broadcast about the pair takes the place of another by.
func pairName(id pairID) string { return id.a + " " + id.b }

// ownPair is a pair that this node is one of.
type ownPair struct {
	cluster.Pair
	changed bool
	told    time.Time // zero for never
}

// due is when it is to be told, or forgotten if it is over and that was told.
func (o *ownPair) due() time.Time {
	if o.changed || o.Addresses == 0 {
		return o.told.Add(pairPause)
	}
	return o.told.Add(pairRefresh)
}

// heardPair is a pair that another node told of. Without addresses it keeps an older
// message that comes later from being taken for news.
type heardPair struct {
	cluster.Pair
	origin wire.MemberID
	seq    uint64
}

func (p *pairs) init() {
	p.own, p.heard = make(map[pairID]*ownPair), make(map[pairID]*heardPair)
	p.telling, p.relaying = rate.NewLimiter(pairRate, pairBurst), rate.NewLimiter(relayRate, relayBurst)
}

// Pair reports to all nodes how many addresses this node shares with another. Only the node with the
// lesser NodeID sends the report.
func (g *Gossip) Pair(p cluster.Pair) {
	p.Examples = slices.Clone(p.Examples[:min(len(p.Examples), maxExamples, max(p.Addresses, 0))])
	g.in.call(func() { g.pair(p, time.Now()) })
}

func (g *Gossip) pair(p cluster.Pair, now time.Time) {
	self := g.roster.Self().ID
	if p.A >= p.B || p.A != self && p.B != self || p.Addresses < 0 {
		g.count.drop(dropPair)
		return
	}
	id := pairID{p.A, p.B}
	own := g.pairs.own[id]
	switch {
	case own != nil:
	case p.Addresses == 0:
		return
	case len(g.pairs.own) >= maxPairs:
		g.count.drop(dropPairs)
		return
	default:
		own = new(ownPair)
		g.pairs.own[id] = own
	}
	if own.Addresses != p.Addresses || !slices.Equal(own.Examples, p.Examples) {
		own.changed = true
	}
	p.LastReceived = now
	own.Pair = p
	if p.Addresses == 0 && own.told.IsZero() {
		delete(g.pairs.own, id)
	}
	g.pairs.due = time.Time{}
}

// pairsDue does what is due and returns when something is due next, zero for never.
func (g *Gossip) pairsDue(now time.Time) time.Time {
	p := &g.pairs
	if !now.Before(p.tidied.Add(pairTick)) {
		p.tidied = now
		for id, heard := range p.heard {
			if !now.Before(heard.LastReceived.Add(pairTime)) {
				delete(p.heard, id)
			}
		}
	}
	next := time.Time{}
	if len(p.own) > 0 {
		if p.due.IsZero() || !now.Before(p.due) {
			p.due = g.tellPairs(now)
		}
		next = p.due
	}
	if len(p.heard) > 0 {
		next = earliest(next, p.tidied.Add(pairTick))
	}
	return next
}

// tellPairs broadcasts the pairs that are due, and returns when the next one is.
func (g *Gossip) tellPairs(now time.Time) (next time.Time) {
	p := &g.pairs
	for id, own := range p.own {
		switch {
		case own.A != g.roster.Self().ID:
			continue // the other node tells
		case own.due().After(now):
		case own.Addresses == 0 && !own.changed:
			delete(p.own, id)
			continue
		case !p.telling.AllowN(now, 1):
			next = earliest(next, now.Add(time.Second/pairRate))
			continue
		default:
			p.seq++
			own.changed, own.told = false, now
			g.broadcast(pairName(id), wire.Pair{
				A: own.A, B: own.B, Origin: g.id, Seq: p.seq, Addresses: own.Addresses, Examples: own.Examples,
				Since: now.Sub(own.Since),
			})
		}
		next = earliest(next, own.due())
	}
	return next
}

// receivePair takes in a pair and passes it on if it is news. Only the lesser node of a
// pair tells of it, and only its present agent.
func (g *Gossip) receivePair(_ *roster.Node, v wire.Pair, now time.Time) {
	p := &g.pairs
	origin := g.roster.Sender(v.Origin)
	switch {
	case origin == nil, g.roster.ByID(v.B) == nil:
		g.count.drop(dropUnknown)
		return
	case origin.ID != v.A:
		g.count.drop(dropPair)
		return
	case origin == g.roster.Self():
		return // others pass on what is ours
	}
	id := pairID{v.A, v.B}
	heard := p.heard[id]
	switch {
	case heard == nil && len(p.heard) >= maxPairs:
		g.count.drop(dropPairs)
		return
	case heard == nil:
		heard = new(heardPair)
		p.heard[id] = heard
	case heard.origin == v.Origin && v.Seq <= heard.seq:
		return // seen
	}
	*heard = heardPair{
		Pair: cluster.Pair{
			A: v.A, B: v.B, Addresses: v.Addresses, Examples: v.Examples, Since: now.Add(-v.Since), LastReceived: now,
		},
		origin: v.Origin, seq: v.Seq,
	}
	if !p.relaying.AllowN(now, 1) {
		g.count.drop(dropRelay)
		return
	}
	g.broadcast(pairName(id), v)
}

// Pairs returns the pairs of nodes that share addresses, ordered by their NodeIDs. For its own pairs
// this node uses its own figures.
func (g *Gossip) Pairs() []cluster.Pair {
	g.state.Lock()
	defer g.state.Unlock()
	now := time.Now()
	var list []cluster.Pair
	add := func(p cluster.Pair) {
		if p.Addresses > 0 {
			p.Examples = slices.Clone(p.Examples)
			list = append(list, p)
		}
	}
	for _, own := range g.pairs.own {
		add(own.Pair)
	}
	for id, heard := range g.pairs.heard {
		if g.pairs.own[id] == nil && now.Before(heard.LastReceived.Add(pairTime)) {
			add(heard.Pair)
		}
	}
	slices.SortFunc(list, func(x, y cluster.Pair) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return list
}

// broadcast tells an entry to all members, instead of one with the same key that waits.
func (g *Gossip) broadcast(key string, e wire.Entry) {
	g.network.Broadcast(key, wire.Encode(g.id, e))
	g.count.send(e.Type(), 1)
}
