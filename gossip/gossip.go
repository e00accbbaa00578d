// Package gossip is one agent's part in the cluster: it has this node's leases kept by
// other members, keeps theirs, tells those who have one address of each other, and carries
// questions, answers and queries between agents.
//
// Members trust each other as far as the key of the cluster goes: whoever has it may say
// what it likes in any member's name. All that it can do so is bounded, though, and no holder
// counts as verified but by the word of the node it is said to be on.
//
// It decides nothing: what a rival means, and who has an address, is for package detector
// to judge. It sees packets as package wire reads them and members as a [Network] tells of
// them, and knows nothing of interfaces, pods and sockets.
//
// One goroutine, [Gossip.Run], owns all state. Whatever comes in from elsewhere, packets,
// news of members and calls of the agent, waits in a bounded [input] until it is taken
// up, so that no caller ever waits for another.
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
	// DefaultReplicas is how many nodes keep an address: two may fail at once.
	DefaultReplicas = 3
	// maxReplicas bounds what a wrong flag may cost.
	maxReplicas = 16
	// maxMessages bounds what waits for the agent.
	maxMessages = 4096
)

// Options say who this member is and how it reaches the others.
type Options struct {
	// Log is that of Members, if it has none.
	Log *slog.Logger
	// Replicas is how many nodes keep an address, 3 if zero.
	Replicas int
	// Members are the identity and the membership; its Handler is set by [New].
	Members members.Options
	// Open opens the network; nil is [members.Open].
	Open func(members.Options) (Network, error)
}

// Gossip is one agent's part in the cluster. It satisfies agent.Cluster, where its methods
// are described.
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

// New opens the network; Run takes part in it. It fails if the options are wrong or the
// network cannot be opened.
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

// Run takes part in the cluster until ctx ends, and leaves it in order.
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

// Messages is what other nodes tell or ask.
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

// Lease tells the keepers of an address that a holder of this node has it.
func (g *Gossip) Lease(l cluster.Lease) {
	g.in.lease(leaseChange{key: l.Key, holder: l.Binding.Holder.ID, claim: l.Binding})
}

// Withdraw ends a lease and tells the nodes of the rivals.
func (g *Gossip) Withdraw(key detector.Key, holder detector.HolderID, rivals []string) {
	g.in.lease(leaseChange{key: key, holder: holder, gone: true, rivals: rivals})
}
