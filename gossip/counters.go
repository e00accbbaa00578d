package gossip

import (
	"maps"
	"sync"

	"github.com/dupip/dupip/gossip/wire"
)

// The reasons for which something is not accepted or not sent. Those of packages transport and keeper come on top.
const (
	dropInbox     = "inbox full"
	dropCalls     = "too many calls"
	dropAgent     = "agent busy"
	dropLeases    = "too many leases of this node"
	dropNodes     = "too many nodes"
	dropUnknown   = "unknown sender"
	dropAbout     = "about an unknown node"
	dropPackets   = "packets of one node"
	dropMessages  = "messages of one node"
	dropOutbox    = "outbox full"
	dropQueue     = "too many messages wait"
	dropSend      = "not sent"
	dropMalformed = "malformed message"
	dropField     = "unknown field"

	dropForeign  = "probe request for another node's holder"
	dropInvalid  = "impossible lease"
	dropNoHolder = "no holder here"
	dropNoKeeper = "conflict notice from a node that is no keeper"
	dropOurs     = "about this node"
	dropUnasked  = "reply without a request"
	dropReply    = "probe reply without a request"
	dropQueries  = "too many queries"
	dropReports  = "too many open conflicts"
	dropReporter = "report to an agent"
)

// counters count messages, by reason or kind. They are safe for concurrent use.
type counters struct {
	mu                      sync.Mutex
	dropped, sent, received map[string]uint64
}

func newCounters() *counters {
	c := &counters{dropped: make(map[string]uint64), sent: make(map[string]uint64), received: make(map[string]uint64)}
	for k := wire.KindLease; k < wire.Kinds; k++ {
		c.sent[k.String()], c.received[k.String()] = 0, 0
	}
	return c
}

func (c *counters) drop(reason string)         { c.add(c.dropped, reason, 1) }
func (c *counters) dropN(reason string, n int) { c.add(c.dropped, reason, n) }
func (c *counters) field(unknown bool) {
	if unknown {
		c.drop(dropField)
	}
}
func (c *counters) send(k wire.Kind, n int)    { c.add(c.sent, k.String(), n) }
func (c *counters) receive(k wire.Kind, n int) { c.add(c.received, k.String(), n) }
func (c *counters) add(to map[string]uint64, what string, n int) {
	if n > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		to[what] += uint64(n)
	}
}

// read returns copies.
func (c *counters) read() (dropped, sent, received map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.dropped), maps.Clone(c.sent), maps.Clone(c.received)
}
