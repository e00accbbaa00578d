// Package agent is one node's dupip: it turns the observer's records into sightings
// of holders, feeds them to the detector, does what the detector asks for, and
// answers the local API.
//
// All state is owned by one goroutine (see loop); the others read from the kernel
// or write to clients and hand over by channels.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Options configures an [Agent]. Zero values mean the defaults.
type Options struct {
	Log *slog.Logger
	// NodeName is the node's name in all output, by default the host name.
	NodeName string
	// Attach says how the observer attaches, by default [bpf.Auto].
	Attach bpf.Mode
	// MinOverlap is how long two holders must both have answered for a conflict to
	// be confirmed, by default 1 s.
	MinOverlap time.Duration
	// APISocket is the path of the Unix socket, by default [api.DefaultSocket].
	APISocket string
	// Version is shown in the status.
	Version string
}

// DefaultMinOverlap is the default of [Options.MinOverlap].
const DefaultMinOverlap = time.Second

// Agent is one node's agent. Create it with [New]; Run it once.
type Agent struct {
	opts     Options
	log      *slog.Logger
	node     Node
	started  time.Time
	listener net.Listener
	lock     net.Listener
	observer *bpf.Observer
	watcher  *links.Watcher
	sender   *solicit.Sender
	loop     *loop
}

// New prepares everything that can fail: it opens the socket, loads the programs
// and sweeps away what a killed predecessor left. The error says what to do.
// The agent observes the netns of the calling process.
func New(opts Options) (_ *Agent, err error) {
	if opts.MinOverlap == 0 {
		opts.MinOverlap = DefaultMinOverlap
	}
	if opts.MinOverlap < 0 || opts.MinOverlap > time.Minute {
		return nil, fmt.Errorf("min overlap %s: must be more than 0 and at most 1m", opts.MinOverlap)
	}
	if opts.APISocket == "" {
		opts.APISocket = api.DefaultSocket
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the agent needs root: it loads BPF programs and enters network namespaces")
	}
	a := &Agent{opts: opts, log: opts.Log, started: time.Now()}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.node, err = ThisNode(opts.NodeName); err != nil {
		return nil, err
	}
	if a.listener, err = api.Listen(opts.APISocket); err != nil {
		return nil, err
	}
	if a.lock, err = lockNetns(); err != nil {
		return nil, err
	}
	removed, err := bpf.Sweep()
	if err != nil {
		return nil, err
	}
	if removed > 0 {
		a.log.Info("removed programs that a former agent left", "count", removed)
	}
	mac := solicit.MAC(a.node.Name, a.node.BootID)
	if a.observer, err = bpf.Load(bpf.Options{Mode: opts.Attach, SolicitMAC: [6]byte(mac)}); err != nil {
		return nil, err
	}
	if err := netns.CanEnter(); err != nil {
		return nil, err
	}
	if a.sender, err = solicit.Open(mac); err != nil {
		return nil, err
	}
	if a.watcher, err = links.New(links.Options{Log: a.log, Observer: a.observer}); err != nil {
		return nil, err
	}
	hostCookie, err := netns.Cookie()
	if err != nil {
		return nil, err
	}
	a.loop = &loop{
		log:      a.log,
		node:     a.node,
		observer: a.observer,
		watcher:  a.watcher,
		sender:   a.sender,
		host:     detector.HolderID{Node: a.node.ID(), Netns: hostCookie},
		detector: detector.New(detector.Options{Node: a.node.ID(), MinOverlap: opts.MinOverlap}),
	}
	a.loop.init()
	return a, nil
}

// lockNetns keeps a second agent out of this netns, where it would sweep away the
// first one's programs: abstract sockets belong to a netns and go with their process.
func lockNetns() (net.Listener, error) {
	lock, err := net.Listen("unix", "@dupip-agent")
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, errors.New("another agent observes this node already; stop it first")
	}
	if err != nil {
		return nil, fmt.Errorf("locking the node's netns: %w", err)
	}
	return lock, nil
}

func (a *Agent) close() {
	if a.listener != nil {
		a.listener.Close()
	}
	if a.lock != nil {
		a.lock.Close()
	}
	if a.sender != nil {
		a.sender.Close()
	}
	if a.observer != nil {
		a.observer.Close()
	}
}

// Run runs the agent until ctx ends or a part of it fails for good, and leaves
// nothing attached behind.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	a.log.Info("observing", "node", a.node.Name, "attach", a.observer.Mode(), "socket", a.opts.APISocket,
		"minOverlap", a.opts.MinOverlap)
	group, ctx := errgroup.WithContext(ctx)
	records := make(chan bpf.Record, 1024)
	group.Go(func() error { return a.read(ctx, records) })
	group.Go(func() error { return a.watcher.Run(ctx) })
	group.Go(func() error { return a.loop.run(ctx, records) })
	group.Go(func() error { return api.Serve(ctx, a.listener, a, a.log) })
	// Read blocks until the observer is closed; the watcher detaches on its own.
	stop := context.AfterFunc(ctx, func() { a.observer.Close() })
	defer stop()
	err := group.Wait()
	a.log.Info("stopped observing", "node", a.node.Name)
	return err
}

// read hands records to the loop. When the loop falls behind the ring buffer fills,
// and the program counts what it could not write.
func (a *Agent) read(ctx context.Context, records chan<- bpf.Record) error {
	for {
		var record bpf.Record
		if err := a.observer.Read(&record); err != nil {
			if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("reading records: %w", err)
		}
		select {
		case records <- record:
		case <-ctx.Done():
			return nil
		}
	}
}
