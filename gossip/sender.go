package gossip

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
)

const (
	// So many packets may one node send at once, and so many per second.
	packetRate, packetBurst = 1000, 5000
	// So many of its messages are for the agent. A node that shares 1,000 addresses with this one has as many probe
	// requests for each of two rounds, and as many notices if it keeps them.
	messageRate, messageBurst = 1000, 4000
	// returnedEvery is how often the agent is notified of a node that sends, but does not reply.
	returnedEvery = 5 * time.Second
	// A node that has not acknowledged so many messages, or one so often, for so long is suspect.
	suspectTries = 3
	suspectAfter = 3 * time.Second
	// lateAfter is after what time a keeper that did not acknowledge is worth a problem.
	lateAfter = 5 * time.Second
)

// sender is what there is to know of a node that packets came from.
type sender struct {
	packets, messages *rate.Limiter
	// silent: it left a probe request without a reply. returned is when the agent was notified last that it is
	// there again, resent when it was sent all leases again.
	silent           bool
	returned, resent time.Time
}

// sender returns that of a node in the roster.
func (g *Gossip) sender(n *roster.Node) *sender {
	s := g.senders[n]
	if s == nil {
		s = &sender{packets: rate.NewLimiter(packetRate, packetBurst), messages: rate.NewLimiter(messageRate, messageBurst)}
		g.senders[n] = s
	}
	return s
}

// deliverOf hands a message of a node to the agent, and reports whether there was room for it.
func (g *Gossip) deliverOf(n *roster.Node, m cluster.Message, now time.Time) bool {
	if !g.sender(n).messages.AllowN(now, 1) {
		g.count.drop(dropMessages)
		return false
	}
	return g.deliver(m)
}

// returned notifies the agent that a node is there again which had left probe requests without a reply.
func (g *Gossip) returned(n *roster.Node, now time.Time) {
	if s := g.senders[n]; s != nil && s.silent && now.Sub(s.returned) >= returnedEvery && g.deliver(cluster.Returned{Node: n.ID}) {
		s.silent, s.returned = false, now
	}
}

// unacked counts the leases that are not acknowledged for more than a few seconds, in all and by keeper, and returns
// the nodes that are suspect.
func (g *Gossip) unacked(now time.Time) (leases int, by map[*roster.Node]int, suspect map[*roster.Node]bool) {
	by, suspect = make(map[*roster.Node]int), make(map[*roster.Node]bool)
	tries, late := make(map[*roster.Node]int), make(map[lease.ID]bool)
	g.queue.Late(suspectAfter, now, func(to *roster.Node, m retry.Message, n int, since time.Time) {
		if tries[to] += n; tries[to] >= suspectTries && to != g.roster.Self() {
			suspect[to] = true
		}
		if l, ok := m.(*lease.Lease); ok && !l.Gone && now.Sub(since) > lateAfter {
			by[to]++
			late[l.ID] = true
		}
	})
	return len(late), by, suspect
}
