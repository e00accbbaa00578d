package gossip

import (
	"sync"

	"github.com/dupip/dupip/gossip/wire"
)

// The reasons for which something is not taken in or not sent. Those of package wire
// (malformed, version and so on) and of package keeper come on top.
const (
	dropInbox    = "inbox full"
	dropCalls    = "too many calls"
	dropMessages = "agent busy"
	dropLeases   = "too many leases of this node"
	dropNodes    = "too many nodes"
	dropName     = "impossible node name"
	dropHolders  = "too many holders of an address"
	dropStranger = "unknown sender"
	dropSelf     = "sent by this node"
	dropUnknown  = "about an unknown node"
	dropPackets  = "packets of one node"
	dropOutbox   = "outbox full"
	dropSend     = "not sent"

	dropForeign   = "lease of another node's holder"
	dropInvalid   = "impossible lease"
	dropEvidence  = "lease without evidence"
	dropRivalRate = "rivals of one node"
	dropNoHolder  = "no holder here"
	dropNoKeeper  = "rival from a node that is no keeper"
	dropOurs      = "about this node"
	dropAsks      = "too many questions of this node"
	dropGones     = "too many rivals"
	dropGoneRate  = "withdrawals of one node"
	dropUnasked   = "answer without a question"
	dropAskRate   = "questions of one node"
	dropQuestions = "too many questions"
	dropTestimony = "testimony without a question"
)

// counters count messages, that is entries of packets. They are safe for concurrent use.
type counters struct {
	mu             sync.Mutex
	dropped        map[string]uint64
	sent, received [wire.TypePair + 1]uint64
}

func newCounters() *counters {
	return &counters{dropped: make(map[string]uint64)}
}

// drop counts one that was dropped. Reasons are constants, so there are not many.
func (c *counters) drop(reason string) { c.dropN(reason, 1) }

func (c *counters) dropN(reason string, n int) {
	c.mu.Lock()
	c.dropped[reason] += uint64(n)
	c.mu.Unlock()
}

func (c *counters) send(t wire.Type, n int) {
	c.mu.Lock()
	c.sent[t] += uint64(n)
	c.mu.Unlock()
}

func (c *counters) receive(t wire.Type, n int) {
	c.mu.Lock()
	c.received[t] += uint64(n)
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
	for t := wire.TypeLease; t <= wire.TypePair; t++ {
		sent[t.String()], received[t.String()] = c.sent[t], c.received[t]
	}
	return dropped, sent, received
}
