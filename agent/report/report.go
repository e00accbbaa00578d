// Package report makes what people and other programs read of the agent: the documents of the
// API, the figures of /metrics, the log lines about conflicts and the answers to queries of
// other nodes. It reads the other parts and changes none of them.
package report

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/peer"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Cluster is what other nodes' agents tell. Its methods are safe for concurrent use and, but
// for Query, never wait.
type Cluster interface {
	// Query asks the members. It returns what there is when ctx ends, or when all have
	// answered; it fails only if nobody can be asked.
	Query(ctx context.Context, q cluster.Query) (cluster.Result, error)
	// Reply answers a Query that came as a message.
	Reply(query uint64, d cluster.Document)
	// Members are the agents that are or were there, by node name; Pairs the pairs of
	// nodes that share addresses.
	Members() []cluster.Member
	Pairs() []cluster.Pair
	Status() cluster.Status
}

// Options configures a [Report]: the parts that it reads and what it cannot read from them.
type Options struct {
	Log *slog.Logger
	// Self is this agent as a member. Attach, MinOverlap, Metrics, ConfigPath and StateDir are
	// shown in the status.
	Self                        cluster.Member
	Attach, MinOverlap, Metrics string
	ConfigPath, StateDir        string
	// Do runs a function in the goroutine that owns the parts below. It fails if the agent is
	// stopping or ctx ends first.
	Do func(ctx context.Context, f func()) error

	Detector *detector.Detector
	Table    *observe.Table
	Prober   *probe.Prober
	Peer     *peer.Peer

	// These are safe for concurrent use. Cluster is nil for an agent alone.
	Cluster Cluster
	Watcher *links.Watcher
	Pods    *pods.Resolver
	Store   *state.Store
	Config  *config.Watcher
}

// Report makes documents. It implements [api.Backend] and is safe for concurrent use, but for
// the methods that say otherwise.
type Report struct {
	Options
	watches map[chan api.ConflictEvent]bool
	events  eventLog
	routing chan struct{} // a slot for each query of another node whose routes are looked up
	// lookup begins to look up routes in the kernel's tables.
	lookup func() func(netip.Addr) (route.Route, error)
}

var _ api.Backend = (*Report)(nil)

// maxRouting bounds the queries of other nodes whose routes are looked up at one time.
const maxRoutedQueries = 4

// New returns a Report.
func New(opts Options) *Report {
	return &Report{
		Options: opts,
		watches: make(map[chan api.ConflictEvent]bool),
		events:  eventLog{confirmed: rate.NewLimiter(10, 50), other: rate.NewLimiter(5, 50)},
		routing: make(chan struct{}, maxRoutedQueries),
		lookup:  func() func(netip.Addr) (route.Route, error) { return new(route.Lookup).To },
	}
}

// errStarting keeps "no conflict" from meaning "not looked yet".
var errStarting = errors.New("the agent is still starting; try again in a moment")

// Ready fails until the agent has attached to what was there when it started.
func (r *Report) Ready(ctx context.Context) error { return r.whenReady(ctx, func() {}) }

// ask is Do for questions about the tables, which say nothing before the agent is ready.
func (r *Report) whenReady(ctx context.Context, f func()) error {
	ready := false
	err := r.Do(ctx, func() {
		if ready = r.Table.Ready(); ready {
			f()
		}
	})
	if err == nil && !ready {
		err = errStarting
	}
	return err
}

// alone says that the agent is in no cluster.
func (r *Report) alone() bool { return r.Cluster == nil }
