// Package pods names network namespaces: it asks the node's container runtime, over its
// CRI socket, which pod a netns belongs to.
//
// Names are an ornament. A runtime that is absent, slow, restarted or talks nonsense costs
// names and nothing else: no method blocks, and Run does not end. What the runtime says is
// bounded and checked before anybody sees it. The package owns the connection and the list
// of sandboxes; it knows nothing of interfaces, packets or conflicts.
package pods

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
)

const (
	defaultResync     = time.Minute
	defaultMaxBackoff = 30 * time.Second
	// changesBuffer spares the reader a turn for each of a few names.
	changesBuffer = 16
)

// Options configures a [Resolver]. Zero durations mean the defaults.
type Options struct {
	Log *slog.Logger
	// Socket is the path of the CRI socket, with or without "unix://". Empty tries
	// [DefaultSockets]; "none" or "off" asks nobody.
	Socket string
	// Resync is how often the runtime's list is read when nobody asks for a name (1 min).
	Resync time.Duration
	// MaxBackoff is the longest pause between attempts to connect (30 s).
	MaxBackoff time.Duration
}

// Change says that a netns got a name, or another one.
type Change struct {
	// Cookie is the netns (SO_NETNS_COOKIE).
	Cookie uint64
	Pod    detector.Pod
	// CreatedAt is when the runtime made the sandbox, by an age at the first sight of it, so
	// that the wall clock may be stepped afterwards. Zero where that age makes no sense.
	CreatedAt time.Time
	Sandbox   detector.Sandbox
	// IPs are the addresses the runtime believes the pod to have. It is told by CNI, and
	// may be wrong: a place to look, never evidence.
	IPs []netip.Addr
}

// Status is what the resolver can say of itself. All texts are printable ASCII and short.
type Status struct {
	// Disabled says that nobody is asked.
	Disabled bool
	// Socket is the path in use, or the last one that was.
	Socket string
	// Runtime and Version are what the runtime calls itself.
	Runtime, Version string
	// Connected says that the runtime answers.
	Connected bool
	// LastError is the last trouble, empty when it is over.
	LastError string
	// Sandboxes counts the runtime's list, and Named the netns that have a name.
	Sandboxes, Named int
	// Wanted counts the netns that were asked for in vain; such as belong to no pod stay.
	Wanted int
}

// Resolver maps netns to pods. Create it with [New]; Run it once. The other methods are
// safe for concurrent use and never block.
type Resolver struct {
	log        *slog.Logger
	sockets    []string // in order of preference, none if disabled
	resync     time.Duration
	maxBackoff time.Duration
	own        uint64 // cookie of the node's netns, which is no pod's

	changes chan Change
	wake    chan struct{} // something is wanted
	queued  chan struct{} // there are pending changes

	mu      sync.Mutex
	wants   wants
	known   map[uint64]Change
	pending map[uint64]Change // by cookie, so that a slow reader costs no more than the table
	status  Status

	// The rest is Run's own.
	table       table
	slow        int       // sandboxes in a row whose status did not come in time
	askAt       time.Time // no status before this
	lists, asks *rate.Limiter
	lines       *rate.Limiter
	said        state
}

// New returns a Resolver for the pods of the calling thread's node. The error is about
// the socket's name only: whether there is one shows later.
func New(opts Options) (*Resolver, error) {
	sockets, err := parseSocket(opts.Socket)
	if err != nil {
		return nil, err
	}
	own, err := netns.Cookie()
	if err != nil {
		return nil, err
	}
	quietLibrary()
	return &Resolver{
		log:        opts.Log,
		sockets:    sockets,
		resync:     cmp.Or(opts.Resync, defaultResync),
		maxBackoff: cmp.Or(opts.MaxBackoff, defaultMaxBackoff),
		own:        own,
		changes:    make(chan Change, changesBuffer),
		wake:       make(chan struct{}, 1),
		queued:     make(chan struct{}, 1),
		wants:      wants{cookies: make(map[uint64]struct{})},
		known:      make(map[uint64]Change),
		pending:    make(map[uint64]Change),
		status:     Status{Disabled: len(sockets) == 0},
		table:      table{byID: make(map[string]*sandbox)},
		lists:      rate.NewLimiter(listsPerSecond, listsBurst),
		asks:       rate.NewLimiter(asksPerSecond, asksBurst),
		lines:      rate.NewLimiter(rate.Every(time.Minute), linesBurst),
	}, nil
}

// Run asks the runtime until ctx ends, and returns nil: no trouble of a runtime is an error.
func (r *Resolver) Run(ctx context.Context) error {
	if len(r.sockets) == 0 {
		<-ctx.Done()
		return nil
	}
	var group sync.WaitGroup
	group.Go(func() { r.deliver(ctx) })
	r.follow(ctx)
	group.Wait()
	return nil
}

// Want says that a netns was seen that has no name: the runtime is asked soon, and some
// times again, because CNI finishes before the runtime speaks of the pod. Requests are
// folded and limited in rate; what is wanted twice is asked for once.
func (r *Resolver) Want(cookie uint64) {
	if len(r.sockets) == 0 || cookie == 0 || cookie == r.own {
		return
	}
	r.mu.Lock()
	_, known := r.known[cookie]
	wanted := !known && r.wants.add(cookie, time.Now())
	r.mu.Unlock()
	if wanted {
		poke(r.wake)
	}
}

// Again says that something hangs on what the runtime tells of its sandboxes: the list is
// read again soon, at most once in 5 s because of this.
func (r *Resolver) Again() {
	r.mu.Lock()
	r.wants.again(time.Now())
	r.mu.Unlock()
	poke(r.wake)
}

// Pod returns what is known of the pod of a netns, or false if it has no name. Do not
// change the slice.
//
// Whoever reads Pod and then Changes misses nothing: what is sent was known before.
func (r *Resolver) Pod(cookie uint64) (Change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change, ok := r.known[cookie]
	return change, ok
}

// Changes returns the channel of names that were found. A slow reader gets the latest name
// of each netns, in no order. That a sandbox is gone is no change: its netns goes with it.
func (r *Resolver) Changes() <-chan Change { return r.changes }

// Status returns how it stands.
func (r *Resolver) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	status.Named, status.Wanted = len(r.known), len(r.wants.cookies)
	return status
}

// publish makes what the table says the present state, and queues what is new in it.
func (r *Resolver) publish() {
	named := r.table.named()
	r.mu.Lock()
	for cookie, change := range named {
		old, ok := r.known[cookie]
		if !ok || old.Pod != change.Pod || old.Sandbox != change.Sandbox || !old.CreatedAt.Equal(change.CreatedAt) || !slices.Equal(old.IPs, change.IPs) {
			r.pending[cookie] = change
		}
		delete(r.wants.cookies, cookie)
	}
	r.known = named
	maps.DeleteFunc(r.pending, func(cookie uint64, _ Change) bool {
		_, ok := named[cookie]
		return !ok
	})
	queued := len(r.pending) > 0
	r.mu.Unlock()
	if queued {
		poke(r.queued)
	}
}

// deliver hands changes to the reader, apart from the calls so that neither waits for the
// other.
func (r *Resolver) deliver(ctx context.Context) {
	for {
		change, ok := r.nextChange()
		if !ok {
			select {
			case <-r.queued:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case r.changes <- change:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Resolver) nextChange() (Change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cookie, change := range r.pending {
		delete(r.pending, cookie)
		return change, true
	}
	return Change{}, false
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
