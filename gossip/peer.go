package gossip

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
)

// What one node may send: so many at once, and so many per second. A node with 250
// conflicts with this one has 250 questions, and 250 rivals from each of three keepers.
const (
	packetRate, packetBurst = 1000, 5000
	rivalRate, rivalBurst   = 500, 2000
	askRate, askBurst       = 200, 1000
	goneRate, goneBurst     = 200, 1000
	// A query makes a document, of which pages are read then.
	queryRate, queryBurst = 5, 20
	pageRate, pageBurst   = 500, 1000
	// Of one address a keeper has little news: so many rivals in so long a time.
	keyRivals   = 64
	keyRivalsIn = 10 * time.Second
	// backAgain is how often the agent is told of a node that is heard but does not answer.
	backAgain = 5 * time.Second
)

// peer is what there is to know of a node that packets came from.
type peer struct {
	heard                       time.Time
	packets, rivals, asks, gone *rate.Limiter
	queries, pages              *rate.Limiter
	// told counts its rivals by address, since toldFrom.
	told     map[detector.Key]int
	toldFrom time.Time
	// silent: it left a question unanswered. back is when the agent was told last that it
	// is heard again.
	silent bool
	back   time.Time
	// foreign is when it spoke another version, if it has not spoken this one since.
	foreign time.Time
}

// peer returns that of a node in the roster.
func (g *Gossip) peer(n *roster.Node) *peer {
	p := g.peers[n]
	if p == nil {
		p = &peer{
			packets: rate.NewLimiter(packetRate, packetBurst),
			rivals:  rate.NewLimiter(rivalRate, rivalBurst),
			asks:    rate.NewLimiter(askRate, askBurst),
			gone:    rate.NewLimiter(goneRate, goneBurst),

			queries: rate.NewLimiter(queryRate, queryBurst),
			pages:   rate.NewLimiter(pageRate, pageBurst),
		}
		g.peers[n] = p
	}
	return p
}

// heard takes in that a packet came from a node, and says whether to look into it.
func (g *Gossip) heard(n *roster.Node, now time.Time) bool {
	p := g.peer(n)
	p.heard, p.foreign = now, time.Time{}
	return p.packets.AllowN(now, 1)
}

// back tells the agent that a node is heard again which had left questions unanswered.
func (g *Gossip) back(n *roster.Node, now time.Time) {
	if p := g.peers[n]; p != nil && p.silent && now.Sub(p.back) >= backAgain {
		if g.tell(cluster.Returned{Node: n.ID}) {
			p.silent, p.back = false, now
		}
	}
}

// changed takes in what became of a node.
func (g *Gossip) changed(n *roster.Node, change roster.Change, now time.Time) {
	switch change {
	case roster.Came:
		g.back(n, now)
		g.leases.Came(n, now)
		g.kept.Renewed(n, now)
		g.tellRivals(g.kept.Returned(n, now), now)
	case roster.Renewed:
		g.leases.Renewed(n, now)
		g.kept.Renewed(n, now)
	case roster.Went:
		g.leases.Went(n, now)
	}
}

// forget forgets a node that the roster has forgotten.
func (g *Gossip) forget(n *roster.Node) {
	g.kept.Forget(n)
	delete(g.peers, n)
}

// allowRival says whether to look into a rival of a lease that the node keeps.
func (p *peer) allowRival(key detector.Key, now time.Time) bool {
	if p.told == nil || now.Sub(p.toldFrom) >= keyRivalsIn {
		p.told, p.toldFrom = make(map[detector.Key]int), now
	}
	p.told[key]++
	return p.told[key] <= keyRivals
}
