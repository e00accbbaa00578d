// Package gossip connects one agent to the agents of other nodes. It sends this node's leases to their
// keepers, keeps leases of other nodes, notifies the holders of one address of each other, and carries probe
// requests, probe replies and queries.
//
// The package decides nothing: package detector decides what is a conflict. It gets messages and members from a
// [Network], and knows no interfaces, pods and sockets. A member speaks for its own holders only.
//
// The goroutine of [Gossip.Run] owns all state. Messages, changes of members and calls of the agent wait in a
// bounded [input] until it handles them, so no caller waits for another.
package gossip

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/keeper"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// DefaultReplicas is how many keepers an address has: two of them may fail at once.
	DefaultReplicas = 3
	// MaxReplicas is how many it may have: each is one more message for every change.
	MaxReplicas = 16
	// maxMessages bounds the messages that wait for the agent.
	maxMessages = 4096
)

// Options are the identity of this member and how it reaches other members.
type Options struct {
	// Replicas is how many keepers an address has, 1 to 16; 0 is DefaultReplicas.
	Replicas int
	// Members are the identity and the membership; its Handler is set by [New].
	Members members.Options
	// Open opens the network; nil is [members.Open].
	Open func(members.Options) (Network, error)
	// Now is the clock, and Random returns a duration from 0 to less than its argument: nil are the machine's own. A simulation has others.
	Now    func() time.Time
	Random func(time.Duration) time.Duration
}

// Gossip connects one agent to the others: it joins the parts, which know no others than post and peers. It implements agent.Cluster, which describes
// its methods. They are safe for concurrent use and do not block; Query waits for its context.
type Gossip struct {
	log     *slog.Logger
	now     func() time.Time
	network Network
	in      *input
	count   *counters
	queries *queries

	// state guards what follows. The loop has it for a turn at a time; others only to read figures.
	state       sync.Mutex
	roster      *roster.Roster
	peers       *peers
	post        *post
	holders     *holders
	probes      *probes
	reports     *reports
	memberLines memberLines
}

// New opens the network; call Run then, which also closes it. It returns an error if an option is invalid or the
// network cannot be opened.
func New(opts Options) (*Gossip, error) {
	m := opts.Members
	m.Log = cmp.Or(m.Log, slog.Default())
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Random == nil {
		opts.Random = rand.N[time.Duration]
	}
	now := opts.Now()
	self := cluster.Member{Name: m.Node, Boot: m.Boot, Epoch: m.Epoch, Version: m.Version, Role: m.Role}
	count := newCounters()
	r := roster.New(wire.MemberIDOf(m.Node, m.Boot, m.Epoch), self, now)
	peers := &peers{count, make(chan cluster.Message, maxMessages), make(map[*roster.Node]*peer)}
	post := &post{Queue: retry.New(now), count: count, open: make(map[*roster.Node]*packet)}
	g := &Gossip{
		log: m.Log, now: opts.Now, count: count, roster: r, peers: peers, post: post,
		in:      &input{count: count, wake: make(chan struct{}, 1)},
		queries: &queries{log: m.Log, peers: peers, count: count, own: make(chan struct{}, maxQueries), answers: rate.NewLimiter(answerRate, answerBurst)},
		holders: &holders{
			roster: r, peers: peers, post: post, count: count, kept: keeper.New(r),
			leases:  lease.New(r, post.Queue, cmp.Or(opts.Replicas, DefaultReplicas), opts.Random),
			unknown: recent.Map[string, unknownNode]{Half: maxUnknown},
		},
		probes:      &probes{roster: r, peers: peers, post: post, count: count, asked: recent.Map[askedID, askedProbe]{Half: maxAsked}},
		reports:     &reports{roster: r, post: post, count: count, all: make(map[detector.Key]*report)},
		memberLines: memberLines{limit: rate.NewLimiter(rate.Every(10*time.Second), 10)},
	}
	m.Handler = handler{g}
	open := opts.Open
	if open == nil {
		open = func(o members.Options) (Network, error) { return members.Open(o) }
	}
	// From here on messages arrive.
	network, err := open(m)
	if err != nil {
		return nil, err
	}
	g.network, g.post.network, g.queries.network = network, network, network
	g.roster.SetAddress(network.Status().Address)
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
	if g.log.Enabled(ctx, slog.LevelWarn) {
		wg.Go(func() { g.logProblems(ctx) })
	}
	g.loop(done)
	wg.Wait()
	return err
}

// LeaveSoon is [members.Members.LeaveSoon].
func (g *Gossip) LeaveSoon() { g.network.LeaveSoon() }

// Messages returns the channel of messages from other nodes. When it is full, messages are dropped and counted.
func (g *Gossip) Messages() <-chan cluster.Message { return g.peers.messages }

// Lease sends a binding of this node to the keepers of its address, now and at each refresh.
func (g *Gossip) Lease(l cluster.Lease) {
	g.in.call(func(now time.Time) { g.holders.lease(l, now) })
}

// Withdraw ends a lease. It informs the keepers and these other nodes, NodeIDs, that have holders of the address.
func (g *Gossip) Withdraw(key detector.Key, holder detector.HolderID, otherNodes []string) {
	g.in.call(func(now time.Time) { g.holders.withdraw(lease.ID{Key: key, Holder: holder}, otherNodes, now) })
}

// Kept returns leases that this node keeps, see [keeper.Table.Single].
func (g *Gossip) Kept(most int) []cluster.Lease {
	g.state.Lock()
	defer g.state.Unlock()
	return g.holders.kept.Single(most)
}

// RequestProbe sends a probe request for a remote holder to its node, with this node's own holders. The reply is a
// [cluster.ProbeReply]; without one in time its outcome is Unreachable.
func (g *Gossip) RequestProbe(p detector.Probe, own []cluster.Binding) {
	r := &request{p, own, g.now()}
	if !g.in.call(func(now time.Time) { g.probes.request(r, now) }) {
		g.peers.deliver(cluster.ProbeReply{Probe: p, Outcome: detector.Unreachable, At: r.sent})
	}
}

// ReplyProbe answers the [cluster.ProbeRequest] with that ID of a node.
func (g *Gossip) ReplyProbe(to string, id uint64, r cluster.ProbeReply) {
	g.in.call(func(now time.Time) { g.probes.reply(to, id, r, now) })
}

// ReportConflict informs the reporters of a conflict that began, changed or ended: then it is not open, also if the suspicion faded.
// encode returns it as it is sent at a time, in at most that many bytes. It is called each time that the conflict is sent to a reporter.
func (g *Gossip) ReportConflict(key detector.Key, open bool, encode func(at time.Time, most int) ([]byte, error)) {
	g.in.call(func(now time.Time) { g.reports.report(&report{key: key, encode: encode}, open, now) })
}

// ReportSummary informs the reporters of the state of this node.
func (g *Gossip) ReportSummary(s cluster.Summary) {
	g.in.call(func(now time.Time) { g.reports.report(&report{summary: &s}, true, now) })
}
