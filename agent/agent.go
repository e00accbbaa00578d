// Package agent is the dupip agent of one node. It opens what the parts need, and its event loop passes
// events between them: observe turns records into sightings, detector decides, probe probes the node's
// own pods, exchange speaks with other nodes, report serves people and programs.
//
// The loop's goroutine owns all state; other goroutines read from the kernel or write to clients, and
// communicate with it by channels.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/capture"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/core"
	"github.com/dupip/dupip/agent/kernel"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/notify"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Agent is one node's agent. Create it with [New]; Run it once.
type Agent struct {
	opts     Options
	node     cluster.Member
	listener net.Listener
	config   *config.Watcher
	metrics  *metrics.Metrics
	scrapes  net.Listener // nil if switched off
	store    *state.Store
	pods     *pods.Resolver
	observer *bpf.Observer
	watcher  *links.Watcher
	audit    *audit.Audit
	sender   *probe.Socket
	wire     *wire.Wire
	cluster  Cluster          // nil for an agent alone
	notifier *notify.Notifier // nil if it tells nobody
	loop     *loop
	closers  []io.Closer
}

// New does everything that can fail: it opens the sockets, loads the programs and removes those that a
// killed agent left. The error says what to do. The agent observes the netns of the calling process.
func New(opts Options) (_ *Agent, err error) {
	if err = opts.Check(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the agent needs root: it loads BPF programs and enters network namespaces")
	}
	a := &Agent{opts: opts}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.node, err = ThisNode(opts.NodeName, opts.Version); err != nil {
		return nil, err
	}
	opts.Notify.Log, opts.Notify.Self = opts.Log, a.node
	if a.notifier, err = notify.New(opts.Notify); err != nil {
		return nil, err
	}
	var initial *config.Config
	a.config, initial, err = config.Open(config.Options{Log: a.opts.Log, Path: opts.Config, Reload: opts.Reload})
	if err != nil {
		return nil, err
	}
	if a.pods, err = pods.New(pods.Options{Log: a.opts.Log, Socket: opts.CRISocket, EngineSocket: opts.EngineSocket}); err != nil {
		return nil, err
	}
	if err := a.openSockets(); err != nil {
		return nil, err
	}
	if err := a.openKernel(); err != nil {
		return nil, err
	}
	if opts.Cluster != nil {
		if a.cluster, err = opts.Cluster(a.node); err != nil {
			return nil, err
		}
	}
	return a, a.assemble(initial)
}

// openSockets fails if another agent runs on the node.
func (a *Agent) openSockets() (err error) {
	if a.listener, err = api.Listen(a.opts.APISocket); err != nil {
		return err
	}
	a.closers = append(a.closers, a.listener)
	// A second agent in this netns would remove the programs of the first. Abstract sockets belong to a netns and end with
	// their process.
	lock, err := net.Listen("unix", "@dupip-agent")
	if errors.Is(err, unix.EADDRINUSE) {
		return errors.New("another agent already observes this node; stop it first (ss -xlp names who has @dupip-agent)")
	}
	if err != nil {
		return fmt.Errorf("locking the node's netns: %w", err)
	}
	a.closers = append(a.closers, lock)
	if a.opts.MetricsListen == Off {
		return nil
	}
	if a.scrapes, err = metrics.Listen(a.opts.MetricsListen); err != nil {
		return err
	}
	a.closers = append(a.closers, a.scrapes)
	return nil
}

func (a *Agent) openKernel() error {
	removed, err := bpf.Sweep()
	if err != nil {
		return err
	}
	if removed > 0 {
		a.opts.Log.Info("removed BPF programs of an earlier agent", "count", removed)
	}
	if a.observer, err = bpf.Load(bpf.Options{Mode: a.opts.Attach, SolicitMAC: probe.Source(a.node.Name, a.node.Boot)}); err != nil {
		return err
	}
	a.closers = append(a.closers, a.observer)
	if err := netns.CanEnter(); err != nil {
		return err
	}
	if a.sender, err = probe.OpenSocket(); err != nil {
		return err
	}
	a.closers = append(a.closers, a.sender)
	a.wire = wire.New(a.opts.Log)
	a.closers = append(a.closers, a.wire)
	a.watcher, err = links.New(links.Options{Log: a.opts.Log, Observer: a.observer})
	return err
}

// assemble makes the loop and its parts, with the state of an earlier agent.
func (a *Agent) assemble(c *config.Config) error {
	hostCookie, err := netns.Cookie()
	if err != nil {
		return err
	}
	var predecessor state.State
	a.store, predecessor = state.Open(state.Options{Log: a.opts.Log, Dir: a.opts.StateDir, Node: a.node.Name, BootID: a.node.Boot})
	l := newLoop(core.Options{
		Log: a.opts.Log, MinOverlap: a.opts.MinOverlap, NodeOverlap: a.opts.VIPOverlap, ScansMute: a.opts.ConfiguredEvidence != Off, Cluster: a.cluster,
		Observe: observe.Options{
			Host: detector.HolderID{Node: a.node.NodeID(), Netns: hostCookie}, GossipAddress: a.gossipAddress(),
			Pod: a.podName, ByHostEnd: a.pods.ByHostEnd, Readdressed: a.pods.Readdressed, Leads: leads, Rescan: a.watcher.Refresh, Counters: a.observer.Counters, Watch: a.watch,
		},
		Probe:  probe.Options{Sender: a.sender, Source: probe.Source(a.node.Name, a.node.Boot), Rescan: a.watcher.Refresh},
		Forget: a.observer.Forget, HostAddresses: links.ListHostAddresses, Ask: a.wire.Ask, Settled: a.watcher.Settled, Unnamed: a.pods.Relist,
	})
	l.heard, l.listen = a.wire.Heard(), a.wire.Listen
	l.events, l.pods, l.store, l.cluster, l.ready = a.watcher.Events(), a.pods, a.store, a.cluster, a.opts.Ready
	if a.opts.Capture != Off {
		l.captures = capture.New(capture.Options{
			Log: a.opts.Log, Node: a.node.NodeID(), Capture: a.observer.Capture, Release: a.observer.Release, CountLost: a.observer.LostFrames,
			Time: observe.TimeOf, VLANs: l.vlansOf,
		})
	}
	a.audit = a.newAudit(l)
	l.report = report.New(a.reportOptions(l))
	sources := l.report.Sources()
	sources.Holders = a.opts.MetricsHolders == On
	a.metrics = metrics.New(sources)
	l.detected = a.metrics.ObserveDetection
	a.loop = l
	a.watcher.SetIgnore(c.Ignored)
	l.Table.Origins.Restore(predecessor.Interfaces)
	l.report.Restore(predecessor.Books, predecessor.Facts, predecessor.Acks)
	l.Configure(c)
	l.restore(predecessor.Snapshot)
	return nil
}

// watch records the answers that are delivered to an interface.
func (a *Agent) watch(ifindex int) (io.Closer, error) { return a.observer.Watch(ifindex) }

// gossipAddress is where the node receives gossip, zero if it is alone.
func (a *Agent) gossipAddress() netip.Addr {
	if a.cluster == nil {
		return netip.Addr{}
	}
	at, _ := netip.ParseAddrPort(a.cluster.Status().Address)
	return at.Addr().Unmap()
}

// podName returns the pod in a netns, or requests its name. It does not block.
func (a *Agent) podName(cookie uint64) (pods.Change, bool) {
	change, ok := a.pods.Pod(cookie)
	if !ok {
		a.pods.Request(cookie)
	}
	return change, ok
}

// leads reports whether the node's route to an address leads into an interface, also as a port of a bridge.
func leads(i *links.Interface, ip netip.Addr) bool {
	routes, err := route.To(ip)
	return err == nil && slices.ContainsFunc(routes, func(to route.Route) bool {
		return to.Kind == route.Out && !to.Gateway.IsValid() && (to.Device.Index == i.Index || to.Port.Index == i.Index)
	})
}

func (a *Agent) newAudit(l *loop) *audit.Audit {
	opts := audit.Options{
		Log: a.opts.Log, Grace: a.opts.UnheldAfter, Sandboxes: a.pods.Sandboxes, Relist: a.pods.Relist,
		Node: func(ctx context.Context) (node audit.Node, err error) {
			err = l.do(ctx, func() { node = audit.NodeOf(l.Table, l.Detector.Each) })
			return node, err
		},
		Done: func(ctx context.Context) {
			if !l.report.AwaitsBooks() {
				return
			}
			_ = l.do(ctx, func() { // it fails if the agent stops
				if l.report.ReadBooks() {
					l.SaveWithin(core.SaveInterval)
				}
			})
		},
	}
	switch dir := a.opts.CNIConfDir; dir {
	case Off:
	case Auto:
		opts.Books = books.NewIPAM(a.pods.ConfDir)
	default:
		opts.Books = books.NewIPAM(func() string { return dir })
	}
	return audit.New(opts)
}

func (a *Agent) reportOptions(l *loop) report.Options {
	opts := report.Options{
		Log: a.opts.Log, Self: a.node,
		Attach: string(a.observer.Mode()), MinOverlap: a.opts.MinOverlap.String(),
		ConfigPath: a.opts.Config, StateDir: a.opts.StateDir,
		Do:        l.do,
		Changed:   func() { l.SaveWithin(core.SaveInterval) },
		OnSegment: a.onSegment(l), Segments: a.wire.Devices, Detector: l.Detector, Table: l.Table, Prober: l.Prober, Exchange: l.Exchange, Captured: l.captures,
		Watcher: a.watcher, Pods: a.pods, Store: a.store, Config: a.config, Books: a.audit, Cluster: a.cluster, Notifications: a.notifier.Status,
	}
	if a.scrapes != nil {
		opts.Metrics = a.scrapes.Addr().String()
	}
	return opts
}

// onSegment has the segment that joins the nodes listened to for the addresses that this node has there, and returns who else was heard with them.
func (a *Agent) onSegment(l *loop) func(time.Time) []wire.Stranger {
	if a.cluster == nil {
		return nil
	}
	return func(time.Time) []wire.Stranger {
		a.wire.Listen(l.Table.Own.Segments(), l.OnSegment())
		others := slices.DeleteFunc(a.cluster.Members(), func(m cluster.Member) bool { return m.Self })
		return l.LookForStrangers(len(others) > 0 && !slices.ContainsFunc(others, cluster.Member.Live))
	}
}

func (a *Agent) close() {
	for _, c := range slices.Backward(a.closers) {
		c.Close()
	}
}

// Healthy fails when ctx ends before the loop answers, or the agent has ended. It is safe for concurrent use.
func (a *Agent) Healthy(ctx context.Context) error { return a.loop.do(ctx, func() {}) }

// saveTimeout is how long a stopping agent waits for its last state to be on disk.
const saveTimeout = 3 * time.Second

// Run runs the agent until ctx ends or a part of it fails, and detaches all programs.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	attributes := []any{"node", a.node.Name, "attach", a.observer.Mode(), "socket", a.opts.APISocket, "minOverlap", a.opts.MinOverlap}
	if a.scrapes != nil {
		attributes = append(attributes, "metrics", a.scrapes.Addr())
	}
	a.opts.Log.Info("starting", attributes...)
	for _, feature := range kernel.Features {
		if lacks, err := feature.Lacks(); err == nil && lacks {
			a.opts.Log.Info("this kernel has " + feature.String())
		}
	}
	// The watcher is the first to stop: while it detaches, which may take seconds, all others go on, and conflicts are found.
	asked := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(asked))
	group, ctx := errgroup.WithContext(ctx)
	records, frames := make(chan bpf.Record, 1024), make(chan bpf.Frame, bpf.MaxFrames)
	group.Go(func() error { return read(ctx, a.observer.Read, records) })
	if a.loop.captures != nil {
		group.Go(func() error { return read(ctx, a.observer.ReadFrame, frames) })
	}
	group.Go(func() error {
		defer stop()
		defer a.observer.Close() // ends read
		return a.watcher.Run(ctx, asked.Done())
	})
	group.Go(func() error { return a.loop.run(ctx, records, frames) })
	group.Go(func() error {
		return api.Serve(ctx, a.listener, api.NewHandler(a.loop.report, api.MaxPolls), a.opts.Log)
	})
	group.Go(func() error { return a.pods.Run(ctx) })
	group.Go(func() error { a.audit.Run(ctx); return nil })
	if a.notifier != nil {
		group.Go(func() error { a.notifier.Run(ctx, a.loop.report); return nil })
	}
	group.Go(func() error {
		return a.config.Run(ctx, func(c *config.Config) error {
			a.watcher.SetIgnore(c.Ignored)
			return a.loop.do(ctx, func() { a.loop.Configure(c) })
		})
	})
	if a.cluster != nil {
		group.Go(func() error { return a.cluster.Run(ctx) })
		defer context.AfterFunc(asked, a.cluster.LeaveSoon)()
		group.Go(func() error { a.loop.report.Summarize(ctx); return nil })
	}
	group.Go(func() error { a.loop.report.FollowPaths(ctx); return nil })
	group.Go(func() error { a.loop.report.FollowSegment(ctx); return nil })
	group.Go(func() error { a.wire.Run(ctx); return nil })
	if a.scrapes != nil {
		handler := a.metrics.Handler(a.Healthy, a.loop.report.Ready)
		group.Go(func() error { return metrics.Serve(ctx, a.scrapes, handler, a.opts.Log) })
	}
	// The store outlives the loop, which saves the last state when it ends.
	saving, saved := context.WithCancel(context.WithoutCancel(ctx))
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = a.store.Run(saving) // it reports problems of the disk by Status and in the log
	}()
	err := group.Wait()
	saved()
	select {
	case <-written:
	case <-time.After(saveTimeout):
		// A hanging disk must not delay the node's next agent.
		a.opts.Log.Warn("the last changes of conflicts were not saved: the disk of the state directory hangs", "directory", a.opts.StateDir, "waited", saveTimeout)
	}
	a.opts.Log.Info("stopped observing", "node", a.node.Name)
	return err
}

// read passes records or frames to the loop. If the loop is slow, the ring buffer fills up and the BPF program
// counts those that it drops.
func read[T any](ctx context.Context, next func(*T) error, to chan<- T) error {
	for {
		var one T
		if err := next(&one); err != nil {
			if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("reading what the observer saw: %w", err)
		}
		select {
		case to <- one:
		case <-ctx.Done():
			return nil
		}
	}
}
