package gossip

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
)

// What one node may send: so many at once, and so many per second. A node with 250 conflicts with this one has
// 250 probe requests, and 250 notices from each of three keepers.
const (
	packetRate, packetBurst   = 1000, 5000
	noticeRate, noticeBurst   = 500, 2000
	requestRate, requestBurst = 500, 2000
	endRate, endBurst         = 200, 1000
	// Of one address a keeper has little news: so many notices in so long a time.
	keyNotices   = 64
	keyNoticesIn = 10 * time.Second
	// returnedEvery is how often the agent is told of a node that is heard but does not reply.
	returnedEvery = 5 * time.Second
	// A node that has not acknowledged so many messages, or one so often, for so long is suspect.
	suspectTries = 3
	suspectAfter = 3 * time.Second
	// lateAfter is after what time a keeper that did not acknowledge is worth a problem.
	lateAfter = 5 * time.Second
)

// peer is what there is to know of a node that packets came from.
type peer struct {
	packets, notices, requests, ends *rate.Limiter
	// noticed counts its notices by address, since noticedFrom.
	noticed     map[detector.Key]int
	noticedFrom time.Time
	// silent: it left a probe request without a reply. returned is when the agent was told last that it is
	// heard again.
	silent   bool
	returned time.Time
	// resent is when its leases were sent to it again last.
	resent time.Time
}

// peer returns that of a node in the roster.
func (g *Gossip) peer(n *roster.Node) *peer {
	p := g.peers[n]
	if p == nil {
		p = &peer{
			packets:  rate.NewLimiter(packetRate, packetBurst),
			notices:  rate.NewLimiter(noticeRate, noticeBurst),
			requests: rate.NewLimiter(requestRate, requestBurst),
			ends:     rate.NewLimiter(endRate, endBurst),
		}
		g.peers[n] = p
	}
	return p
}

// returned tells the agent that a node is heard again which had left probe requests without a reply.
func (g *Gossip) returned(n *roster.Node, now time.Time) {
	if p := g.peers[n]; p != nil && p.silent && now.Sub(p.returned) >= returnedEvery {
		if g.deliver(cluster.Returned{Node: n.ID}) {
			p.silent, p.returned = false, now
		}
	}
}

// allowNotice reports whether to handle a notice of a keeper about an address.
func (p *peer) allowNotice(key detector.Key, now time.Time) bool {
	if p.noticed == nil || now.Sub(p.noticedFrom) >= keyNoticesIn {
		p.noticed, p.noticedFrom = make(map[detector.Key]int), now
	}
	p.noticed[key]++
	return p.noticed[key] <= keyNotices
}

// unacked counts the leases that are not acknowledged for more than a few seconds, by keeper, and returns the
// nodes that are suspect.
func (g *Gossip) unacked(now time.Time) (leases int, by map[*roster.Node]int, suspect map[*roster.Node]bool) {
	by, suspect = make(map[*roster.Node]int), make(map[*roster.Node]bool)
	tries, late := make(map[*roster.Node]int), make(map[any]bool)
	g.queue.Late(suspectAfter, now, func(to *roster.Node, m retry.Message, n int, since time.Time) {
		if tries[to] += n; tries[to] >= suspectTries && to != g.roster.Self() {
			suspect[to] = true
		}
		if l, ok := m.(lease.Message); ok && !l.Gone && now.Sub(since) > lateAfter {
			by[to]++
			late[m.ID()] = true
		}
	})
	return len(late), by, suspect
}
