package gossip

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
)

const (
	// So many packets may one node send at once, and so many per second.
	packetRate, packetBurst = 1000, 5000
	// So many of its messages are for the agent. A node that shares addresses with this one has a probe request for each probe that its budget
	// allows it, 1,000 a second, and at first a notice for each address that it keeps.
	messageRate, messageBurst = 2500, 10_000
	// returnedEvery is how often the agent is notified of a node that sends, but does not reply.
	returnedEvery = 5 * time.Second
)

// peers is what there is to know of other nodes beside their membership: how much they send, and whether they reply. What they say it
// hands to the agent, from any goroutine; all else is of the loop's. It must not know what they say.
type peers struct {
	count    *counters
	messages chan cluster.Message
	all      map[*roster.Node]*peer
}

// peer is one of them.
type peer struct {
	packets, messages *rate.Limiter
	// silent: it left a probe request without a reply. returned is when the agent was notified last that it is
	// there again, resent when it was sent all leases again.
	silent           bool
	returned, resent time.Time
}

// of returns what there is to know of a node in the roster.
func (p *peers) of(n *roster.Node) *peer {
	s := p.all[n]
	if s == nil {
		s = &peer{packets: rate.NewLimiter(packetRate, packetBurst), messages: rate.NewLimiter(messageRate, messageBurst)}
		p.all[n] = s
	}
	return s
}

// deliver hands a message to the agent, and reports whether there was room for it.
func (p *peers) deliver(m cluster.Message) bool {
	select {
	case p.messages <- m:
		return true
	default:
		p.count.drop(dropAgent)
		return false
	}
}

// deliverOf hands a message of a node to the agent, and reports whether there was room for it.
func (p *peers) deliverOf(n *roster.Node, m cluster.Message, now time.Time) bool {
	if !p.of(n).messages.AllowN(now, 1) {
		p.count.drop(dropMessages)
		return false
	}
	return p.deliver(m)
}

// returned notifies the agent that a node is there again which had left probe requests without a reply.
func (p *peers) returned(n *roster.Node, now time.Time) {
	if s := p.all[n]; s != nil && s.silent && now.Sub(s.returned) >= returnedEvery && p.deliver(cluster.Returned{Node: n.ID}) {
		s.silent, s.returned = false, now
	}
}
