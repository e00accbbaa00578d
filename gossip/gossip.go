// Package gossip connects one agent to the agents of other nodes. It sends this node's leases to
// their keepers, keeps leases of other nodes, sends conflict notices to the holders of one address,
// and carries probe requests, probe replies and queries.
//
// A member that has the cluster's key can send any message in the name of any member. What it can
// cause is bounded, and only the node of a holder can verify that holder.
//
// The package decides nothing: package detector decides what is a conflict. It gets packets from
// package wire and members from a [Network], and knows no interfaces, pods and sockets.
//
// The goroutine of [Gossip.Run] owns all state. Packets, changes of members and calls of the agent
// wait in a bounded [input] until it processes them, so no caller waits for another.
package gossip

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/keeper"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// DefaultReplicas is how many keepers an address has: two of them may fail at once.
	DefaultReplicas = 3
	// maxReplicas bounds the cost of a wrong flag.
	maxReplicas = 16
	// maxMessages bounds the messages that wait for the agent.
	maxMessages = 4096
)

// Options are the identity of this member and how it reaches other members.
type Options struct {
	// Log is used if Members has none; nil is [slog.Default].
	Log *slog.Logger
	// Replicas is how many keepers an address has, 1 to 16; 0 is DefaultReplicas.
	Replicas int
	// Members are the identity and the membership; its Handler is set by [New].
	Members members.Options
	// Open opens the network; nil is [members.Open].
	Open func(members.Options) (Network, error)
}

// Gossip connects one agent to the others. It implements agent.Cluster, which describes its methods.
// They are safe for concurrent use and do not block; Query waits for its context.
type Gossip struct {
	log      *slog.Logger
	id       wire.MemberID
	network  Network
	in       *input
	count    *counters
	messages chan cluster.Message

	// state guards what follows. The loop has it for a turn at a time; others only to read
	// figures from it.
	state  sync.Mutex
	roster *roster.Roster
	peers  map[*roster.Node]*peer
	leases *lease.Table  // this node's
	kept   *keeper.Table // everybody's
	again  []again       // in order of time
	due    []lease.Send  // used again
	out    outbox

	asks      asks
	questions questions
	queries   queries
	pairs     pairs
}

// New opens the network; call Run then, which also closes it. It returns an error if an option is
// invalid or the network cannot be opened.
func New(opts Options) (*Gossip, error) {
	m := opts.Members
	switch {
	case m.Node == "" || m.Boot == "" || strings.Contains(m.Node+m.Boot, "/"):
		return nil, fmt.Errorf("starting gossip: node name %q and boot id %q: neither may be empty or have a slash", m.Node, m.Boot)
	case opts.Replicas < 0 || opts.Replicas > maxReplicas:
		return nil, fmt.Errorf("starting gossip: %d replicas: it must be 1 to %d", opts.Replicas, maxReplicas)
	}
	m.Log = cmp.Or(m.Log, opts.Log, slog.Default())
	g := &Gossip{
		log:      m.Log,
		id:       wire.MemberIDOf(m.Node, m.Boot, m.Epoch),
		count:    newCounters(),
		messages: make(chan cluster.Message, maxMessages),
	}
	g.in = newInput(g.count)
	now := time.Now()
	g.roster = roster.New(g.id, cluster.Member{Name: m.Node, Boot: m.Boot, Epoch: m.Epoch}, now)
	g.peers = make(map[*roster.Node]*peer)
	g.leases = lease.New(g.roster, cmp.Or(opts.Replicas, DefaultReplicas), now)
	g.kept = keeper.New(g.roster)
	g.out.init(g)
	g.asks.init()
	g.questions.init()
	g.queries.init()
	g.pairs.init()
	m.Handler = g.in
	open := opts.Open
	if open == nil {
		open = openMembers
	}
	var err error
	if g.network, err = open(m); err != nil {
		return nil, err
	}
	return g, nil
}

// Run joins the cluster, exchanges messages until ctx ends, and leaves the cluster. Call it once.
func (g *Gossip) Run(ctx context.Context) error {
	// The loop goes on while the network leaves: others may still ask.
	done := make(chan struct{})
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		err = g.network.Run(ctx)
	})
	wg.Go(func() { g.complain(ctx) })
	g.loop(done)
	wg.Wait()
	return err
}

// Messages returns the channel of messages from other nodes. When it is full, messages are dropped
// and counted.
func (g *Gossip) Messages() <-chan cluster.Message { return g.messages }

// tell hands a message to the agent, and says whether there was room for it.
func (g *Gossip) tell(m cluster.Message) bool {
	select {
	case g.messages <- m:
		return true
	default:
		g.count.drop(dropMessages)
		return false
	}
}

// Lease sends a binding of this node to the keepers of its address, now and at each refresh.
func (g *Gossip) Lease(l cluster.Lease) {
	g.in.lease(leaseChange{key: l.Key, holder: l.Binding.Holder.ID, claim: l.Binding})
}

// Withdraw ends a lease. It informs the keepers and these other nodes, NodeIDs, that have holders of
// the address.
func (g *Gossip) Withdraw(key detector.Key, holder detector.HolderID, otherNodes []string) {
	g.in.lease(leaseChange{key: key, holder: holder, gone: true, rivals: otherNodes})
}
