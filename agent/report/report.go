// Package report makes what people and programs read about the agent: the documents of the API, the
// values of /metrics, the log lines about conflicts and the replies to queries of other nodes. It
// reads the other parts and changes none of them.
package report

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/capture"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/paths"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
	"github.com/dupip/dupip/internal/schedule"
)

// Cluster gives access to the agents of other nodes. Its methods are safe for concurrent use and,
// except Query, do not block.
type Cluster interface {
	collect.Cluster
	// ReportConflict and ReportSummary inform the members with the role reporter. encode returns the conflict as it is sent at a time,
	// in at most that many bytes.
	ReportConflict(key detector.Key, open bool, encode func(at time.Time, most int) ([]byte, error))
	ReportSummary(s cluster.Summary)
	// Kept returns at most so many leases that this node keeps, of addresses that one holder has: a pod of another node.
	Kept(most int) []cluster.Lease
	// Members are the agents that are or were in the cluster, by node name.
	Members() []cluster.Member
	Status() cluster.Status
}

// Options configures a [Report].
type Options struct {
	Log *slog.Logger
	// Self is this agent as a member. Attach, MinOverlap, Metrics, ConfigPath and StateDir are
	// shown in the status.
	Self                        cluster.Member
	Attach, MinOverlap, Metrics string
	ConfigPath, StateDir        string
	// Do runs a function in the goroutine that owns the parts. It fails if the agent is stopping or
	// ctx ends first.
	Do func(ctx context.Context, f func()) error
	// Changed is called in that goroutine when there is something new to keep, see [Report.Kept]. It may be nil.
	Changed func()

	// These belong to that goroutine. Captured is nil if that is switched off.
	Detector *detector.Detector
	Table    *observe.Table
	Prober   *probe.Prober
	Exchange *exchange.Exchange
	Captured *capture.Set
	// OnSegment returns who was heard on the segment that joins the nodes with addresses that this node has there, and has that listened to; nil if
	// nothing is. It belongs to that goroutine, too.
	OnSegment func(now time.Time) []wire.Stranger

	// Segments returns the devices that are listened on, sorted, each with why that is not possible; nil if nothing is.
	Segments func() []wire.Device

	// These are safe for concurrent use. Cluster is nil for an agent alone.
	Cluster Cluster
	Watcher *links.Watcher
	Pods    *pods.Resolver
	Store   *state.Store
	Config  *config.Watcher
	Books   *audit.Audit
	// Notifications says whom the agent tells of conflicts; nil for nobody.
	Notifications func() []document.NotificationStatus
}

// Report makes documents. It implements [api.Backend] and is safe for concurrent use, except the
// methods that say otherwise.
type Report struct {
	Options
	watches      map[chan document.ConflictEvent]bool
	events       *eventLog
	causes       causes
	facts        facts
	acks         map[string]*document.Ack // by the conflict's id; they do not change
	view         *view                    // a recent one
	viewPace     schedule.Pace
	paths        *paths.Paths
	shadows      shadows // of the goroutine that runs paths
	segment      atomic.Pointer[segment]
	segmentLines *rate.Limiter
	// Of the queries of other nodes: those that look up routes, those for the status, and those that wait for facts.
	routing, stating, answering *semaphore.Weighted
	encoding                    chan struct{} // has a value for each answer that is encoded
	// [route.To] and [route.Watch]; tests replace them.
	lookup func(netip.Addr) ([]route.Route, error)
	watch  func(context.Context) (<-chan struct{}, error)
}

var _ api.Backend = (*Report)(nil)

// maxRoutedQueries limits the queries of other nodes that look up routes at the same time, and those for the status.
const maxRoutedQueries = 4

var tooManyRouted = bounds.New("too many answers to look up routes for")

// New returns a Report.
func New(opts Options) *Report {
	after := func(wait time.Duration, f func()) {
		// If the agent is stopping, Close does it.
		time.AfterFunc(wait, func() { _ = opts.Do(context.Background(), f) })
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	if opts.Notifications == nil {
		opts.Notifications = func() []document.NotificationStatus { return nil }
	}
	r := &Report{
		Options: opts,
		watches: make(map[chan document.ConflictEvent]bool),
		events:  newEventLog(opts.Log, after),
		facts:   facts{known: make(map[string]map[detector.HolderID]*document.Facts), after: func(wait time.Duration, f func()) { time.AfterFunc(wait, f) }},
		acks:    make(map[string]*document.Ack),
		causes:  causes{awaited: make(map[string]detector.Conflict), said: make(map[string][]document.Book)},
		routing: semaphore.NewWeighted(maxRoutedQueries), stating: semaphore.NewWeighted(maxRoutedQueries), answering: semaphore.NewWeighted(maxRoutedQueries), encoding: make(chan struct{}, maxRoutedQueries),
		lookup: route.To, watch: route.Watch, segmentLines: rate.NewLimiter(rate.Every(10*time.Second), 20),
	}
	r.paths = paths.New(paths.Options{Log: r.Log, Self: r.Self.NodeID(), Kept: r.kept, View: r.lookAround, Ask: r.ask})
	return r
}

// errStarting is for the time before all interfaces are listed: "no conflict" would be misleading.
var errStarting = errors.New("the agent is still starting; try again in a moment")

// Ready fails until the agent has handled the interfaces that were there when it started.
func (r *Report) Ready(ctx context.Context) error { return r.whenReady(ctx, func() {}) }

// Started logs that the agent is ready. Call it in the goroutine that owns the parts.
func (r *Report) Started(now time.Time) {
	states := r.byState()
	observed := states[string(links.Attached)] + states[string(links.Shadowed)]
	attributes := []any{"interfaces", observed, "took", now.Sub(r.Self.Since).Round(time.Millisecond)}
	level, text := slog.LevelInfo, "observing"
	for _, state := range []links.State{links.Failed, links.Unsupported} {
		if n := states[string(state)]; n > 0 {
			level, text = slog.LevelWarn, "observing, but not all interfaces; \"dupip status\" lists those that are not observed"
			attributes = append(attributes, string(state), n)
		}
	}
	r.Log.Log(context.Background(), level, text, attributes...)
}

// whenReady is Do for functions that read tables; it fails before the agent is ready.
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

// kept returns leases that this node keeps.
func (r *Report) kept(most int) []cluster.Lease {
	if r.alone() {
		return nil
	}
	return r.Cluster.Kept(most)
}

func (r *Report) alone() bool { return r.Cluster == nil }
