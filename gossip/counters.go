package gossip

import (
	"sync"

	"github.com/dupip/dupip/gossip/wire"
)

// The reasons for which something is not accepted or not sent. Those of packages transport and keeper come on top.
const (
	dropInbox     = "inbox full"
	dropCalls     = "too many calls"
	dropMessages  = "agent busy"
	dropLeases    = "too many leases of this node"
	dropNodes     = "too many nodes"
	dropName      = "impossible node name"
	dropHolders   = "too many holders of an address"
	dropUnknown   = "unknown sender"
	dropSelf      = "sent by this node"
	dropAbout     = "about an unknown node"
	dropPackets   = "packets of one node"
	dropOutbox    = "outbox full"
	dropSend      = "not sent"
	dropMalformed = "malformed message"
	dropField     = "unknown field"

	dropForeign   = "lease of another node's holder"
	dropInvalid   = "impossible lease"
	dropEvidence  = "lease without evidence"
	dropNotices   = "conflict notices of one node"
	dropNoHolder  = "no holder here"
	dropNoKeeper  = "conflict notice from a node that is no keeper"
	dropOurs      = "about this node"
	dropRequests  = "too many probe requests of this node"
	dropEnds      = "too many other holders"
	dropEndRate   = "withdrawals of one node"
	dropUnasked   = "reply without a request"
	dropAskedRate = "probe requests of one node"
	dropAsked     = "too many probe requests"
	dropReply     = "probe reply without a request"
	dropQueries   = "too many queries"
	dropReporter  = "report to an agent"
)

// counters count messages. They are safe for concurrent use.
type counters struct {
	mu             sync.Mutex
	dropped        map[string]uint64
	sent, received [wire.Kinds]uint64
}

func newCounters() *counters { return &counters{dropped: make(map[string]uint64)} }

// drop counts one that was dropped. Reasons are constants, so there are not many.
func (c *counters) drop(reason string) { c.dropN(reason, 1) }

func (c *counters) dropN(reason string, n int) {
	if n > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropped[reason] += uint64(n)
	}
}

func (c *counters) send(k wire.Kind, n int) {
	c.mu.Lock()
	c.sent[k] += uint64(n)
	c.mu.Unlock()
}

func (c *counters) receive(k wire.Kind, n int) {
	c.mu.Lock()
	c.received[k] += uint64(n)
	c.mu.Unlock()
}

// read returns copies by name.
func (c *counters) read() (dropped, sent, received map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dropped, sent, received = make(map[string]uint64), make(map[string]uint64), make(map[string]uint64)
	for reason, n := range c.dropped {
		dropped[reason] = n
	}
	for k := wire.KindLease; k < wire.Kinds; k++ {
		sent[k.String()], received[k.String()] = c.sent[k], c.received[k]
	}
	return dropped, sent, received
}
