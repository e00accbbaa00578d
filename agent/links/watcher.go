package links

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// Defaults of [Options].
const (
	defaultResync = 30 * time.Second
	defaultQuiet  = 3 * time.Second
	// looksApart is how many resyncs a netns that sends no event goes without a look. 250
	// looks twice a minute cost a tenth of a percent of a core.
	looksApart = 10
	// defaultLinkBuffer has room for a few thousand events.
	defaultLinkBuffer = 4 << 20
)

// Options configures a [Watcher]. Zero durations mean the defaults.
type Options struct {
	Log      *slog.Logger
	Observer *bpf.Observer
	// Resync is how often the whole list is compared with the kernel's, for what
	// sends no event (30 s).
	Resync time.Duration
	// Quiet is how long a veth must have been left alone before a clsact qdisc is
	// made on it; only in tc mode (3 s).
	Quiet time.Duration
	// LinkBuffer is the receive buffer of the link subscription in bytes (4 MiB).
	LinkBuffer int
	// Ignore names host-side interfaces that are left alone; nil names none. See
	// [Watcher.SetIgnore].
	Ignore func(name string) bool
}

// Watcher owns the list of interfaces. Run does all the work in one goroutine.
type Watcher struct {
	opts   Options
	log    *slog.Logger
	finder *netns.Finder
	events chan Event

	// mu guards what other goroutines hand to Run; wake says that there is some.
	mu       sync.Mutex
	wake     chan struct{}
	changed  map[int]bool    // netns ids with a changed address
	refresh  map[uint32]bool // generations to look into again
	ignore   func(name string) bool
	reread   bool // ignore is new
	lost     bool // changes of addresses were
	overruns int

	// The rest is Run's own.
	tracked    map[int]*tracked    // by ifindex
	names      map[int]string      // of all devices, by ifindex
	places     map[int]netns.Place // by netns id
	scanned    time.Time
	exits      exits
	outward    map[int]outward // others that lead out of the node, by ifindex
	uplinks    *uplinks        // nil when they have to be listed anew
	generation uint32
	hostDirty  bool
	nextHost   time.Time // when its addresses may be listed again
	bridges    bridges
	nextPorts  time.Time // when they may be asked again
	resyncs    int
	detached   bool // from some interface since the last resync

	foreign map[uint64]foreign // namespaces that no interface leads to, by inode

	// What Unobserved told last, in two parts: the first is found by resync only.
	unsupported     []Interface
	ignored         map[int]string // names by ifindex
	unobservedDirty bool
	listing         bool // what is met now was not told of by an event
}

// tracked is an interface and how far we are with it.
type tracked struct {
	iface      Interface
	nsid, peer int
	attachment *bpf.Attachment
	announced  bool // Added was sent
	dirty      bool // needs a look into its netns
	portDirty  bool // its port's VLAN has to be asked for, if it is one
	nextLook   time.Time
	looks      *rate.Limiter
	tries      int
	quietAt    time.Time // tc mode: when a qdisc may be made
	waitUntil  time.Time // and the latest time for that
	firstPeer  string    // the peer's name when it was first seen
}

// New returns a Watcher for the calling thread's netns, in which Run must be
// called too.
func New(opts Options) (*Watcher, error) {
	// Now rather than in Run: without the right to it nothing would ever be seen.
	watch, err := openAddressWatch()
	if err != nil {
		return nil, err
	}
	watch.Close()
	finder, err := netns.NewFinder()
	if err != nil {
		return nil, err
	}
	opts.Resync = cmp.Or(opts.Resync, defaultResync)
	opts.Quiet = cmp.Or(opts.Quiet, defaultQuiet)
	opts.LinkBuffer = cmp.Or(opts.LinkBuffer, defaultLinkBuffer)
	return &Watcher{
		opts:    opts,
		log:     opts.Log,
		finder:  finder,
		events:  make(chan Event, 64),
		wake:    make(chan struct{}, 1),
		changed: make(map[int]bool),
		refresh: make(map[uint32]bool),
		ignore:  opts.Ignore,
		tracked: make(map[int]*tracked),
		names:   make(map[int]string),
		ignored: make(map[int]string),
		outward: make(map[int]outward),
		bridges: bridges{filtersVLANs, netlink.BridgeVlanList},
	}, nil
}

// Events returns the channel of changes. It must be read until Run returns.
func (w *Watcher) Events() <-chan Event { return w.events }

// Refresh asks for a new look into the netns behind the interface. It never
// blocks; requests for one interface are folded and limited in rate.
func (w *Watcher) Refresh(generation uint32) {
	w.mu.Lock()
	w.refresh[generation] = true
	w.mu.Unlock()
	w.poke()
}

// SetIgnore replaces what interfaces are left alone: those that are named now are
// detached from, and others attached to. Safe for concurrent use; it does not block.
func (w *Watcher) SetIgnore(ignore func(name string) bool) {
	w.mu.Lock()
	w.ignore, w.reread = ignore, true
	w.mu.Unlock()
	w.poke()
}

// isIgnored says whether the configuration excludes a host-side interface.
func (w *Watcher) isIgnored(name string) bool {
	w.mu.Lock()
	ignore := w.ignore
	w.mu.Unlock()
	return ignore != nil && ignore(name)
}

// Overruns returns how often netlink events were lost, and all that they could have told
// of was read anew. Safe for concurrent use.
func (w *Watcher) Overruns() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.overruns
}

func (w *Watcher) addressChanged(nsid int) {
	w.mu.Lock()
	w.changed[nsid] = true
	w.mu.Unlock()
	w.poke()
}

// addressesLost asks for a look at everything, because changes may have been missed.
func (w *Watcher) addressesLost() {
	w.mu.Lock()
	w.lost = true
	w.overruns++
	w.mu.Unlock()
	w.poke()
}

func (w *Watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, then detaches everything. A broken subscription
// (the kernel's buffer ran over) is no error: the list is read anew.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.close()
	pause := 100 * time.Millisecond
	for {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.mu.Lock()
		w.overruns++
		w.mu.Unlock()
		w.log.Warn("netlink subscription broke, reading all interfaces anew", "error", err)
		if time.Since(began) > time.Minute {
			pause = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

func (w *Watcher) close() {
	for _, t := range w.tracked {
		w.detach(t)
	}
	w.finder.Close()
}

// session subscribes, lists and follows until something breaks. Subscribing comes
// first, so that no change falls between the list and the first event.
func (w *Watcher) session(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	broken := make(chan error, 2)
	subscribed := make(chan struct{})
	tasks.Go(func() {
		watch := addressWatcher{
			ready: func() { close(subscribed) }, changed: w.addressChanged, lost: w.addressesLost,
		}
		broken <- watch.run(ctx)
	})
	select {
	case <-subscribed:
	case err := <-broken:
		return err
	}

	updates := make(chan netlink.LinkUpdate, 256)
	done := make(chan struct{})
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		// The library calls this on its own goroutine, then closes updates.
		ErrorCallback: func(err error) {
			select {
			case broken <- err:
			default:
			}
		},
		ReceiveBufferSize:      w.opts.LinkBuffer,
		ReceiveBufferForceSize: true,
	})
	if err != nil {
		return fmt.Errorf("subscribing to links: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // free the library's goroutine
		}
	}()

	w.takeRequests() // the list answers them all
	for _, t := range w.tracked {
		t.dirty = true // changes of addresses between two sessions were not heard of
	}
	if err := w.resync(ctx); err != nil {
		return err
	}
	nextResync := time.Now().Add(w.opts.Resync)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case update, ok := <-updates:
			if !ok {
				return whyClosed(broken)
			}
			w.handle(ctx, update)
			// Attach to those that are there already before looking at any; but no
			// more, or a link that flaps all the time would put looks off for ever.
			for range len(updates) {
				if update, ok = <-updates; !ok {
					return whyClosed(broken)
				}
				w.handle(ctx, update)
			}
		case <-w.wake:
			if w.takeRequests() {
				nextResync = time.Time{}
			}
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(nextResync) {
			if err := w.resync(ctx); err != nil {
				return err
			}
			nextResync = now.Add(w.opts.Resync)
		}
		next := w.work(ctx, now)
		if next.IsZero() || next.After(nextResync) {
			next = nextResync
		}
		timer.Reset(time.Until(next))
	}
}

// whyClosed returns the error that the library reported before it closed the channel.
func whyClosed(broken <-chan error) error {
	select {
	case err := <-broken:
		return err
	default:
		return errors.New("link subscription closed")
	}
}

// takeRequests marks what changed addresses and Refresh calls named, and says whether
// all interfaces have to be read anew.
func (w *Watcher) takeRequests() (reread bool) {
	w.mu.Lock()
	changed, refresh, lost := w.changed, w.refresh, w.lost
	w.changed, w.refresh, w.lost = make(map[int]bool), make(map[uint32]bool), false
	reread, w.reread = w.reread, false
	w.mu.Unlock()
	for _, t := range w.tracked {
		if lost || changed[t.nsid] || refresh[t.iface.Generation] {
			t.dirty = true
		}
	}
	if lost || changed[ownNetns] {
		w.hostChanged()
	}
	return reread
}

// handle follows one link event. Those of the bridge family tell of ports: leaving
// a bridge is a "deletion" there that deletes nothing, and their VLANs may have changed.
func (w *Watcher) handle(ctx context.Context, update netlink.LinkUpdate) {
	if update.Family == unix.AF_BRIDGE {
		if t := w.tracked[int(update.Index)]; t != nil && t.firstPeer != PrimaryPeer {
			t.portDirty = true
		}
		return
	}
	if update.Header.Type == unix.RTM_DELLINK {
		delete(w.names, int(update.Index))
		w.forgetOutward(int(update.Index))
		w.remove(ctx, int(update.Index))
		return
	}
	w.upsert(ctx, update.Link)
}

func (w *Watcher) emit(ctx context.Context, event Event) {
	select {
	case w.events <- event:
	case <-ctx.Done():
	}
}
