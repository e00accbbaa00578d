// Package pods names network namespaces: it asks the node's container runtime, over its
// CRI socket, which pod a netns belongs to.
//
// Pod names are optional. A runtime that is absent, slow, restarted or sends nonsense costs
// names and nothing else: no method blocks, and Run does not end. What the runtime sends is
// bounded and checked before it is published. The package owns the connection and the list
// of sandboxes; it knows nothing of interfaces, packets or conflicts.
package pods

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
)

// Options configures a [Resolver]. Zero durations mean the defaults.
type Options struct {
	Log *slog.Logger
	// Socket is the path of the CRI socket, with or without "unix://". Empty tries
	// [DefaultSockets]; "none" or "off" connects to none.
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
	// IPs are the addresses that CNI reported to the runtime. They may be wrong: dupip probes
	// them, but they are never evidence.
	IPs []netip.Addr
}

func (c Change) equal(other Change) bool {
	return c.Pod == other.Pod && c.Sandbox == other.Sandbox && c.CreatedAt.Equal(other.CreatedAt) && slices.Equal(c.IPs, other.IPs)
}

// Status describes a [Resolver]. All texts are printable ASCII and short.
type Status struct {
	// Disabled says that no runtime is asked.
	Disabled bool
	// Socket is the path in use, or the last one that was.
	Socket string
	// Runtime and Version are what the runtime calls itself.
	Runtime, Version string
	// Connected says that the runtime responds.
	Connected bool
	// LastError is what failed last, empty when it is over.
	LastError string
	// Sandboxes counts the runtime's list, and Named the netns that have a name.
	Sandboxes, Named int
	// Pending counts the netns whose pod was not found; those that belong to no pod stay.
	Pending int
}

// Resolver maps netns to pods. Create it with [New]; Run it once. The other methods are
// safe for concurrent use and never block.
type Resolver struct {
	opts    Options
	sockets []string // in order of preference, none if disabled
	own     uint64   // cookie of the node's netns, which is no pod's
	changes chan Change
	wake    chan struct{} // has a value when the schedule may have changed

	mu       sync.Mutex
	known    map[uint64]Change // by cookie
	schedule schedule
	status   Status

	// The rest is Run's own.
	queue                  map[uint64]Change // to be sent, by cookie: no more than there are names
	table                  table
	lists, statuses, lines *rate.Limiter
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
	opts.Resync = cmp.Or(opts.Resync, time.Minute)
	opts.MaxBackoff = cmp.Or(opts.MaxBackoff, 30*time.Second)
	return &Resolver{
		opts:     opts,
		sockets:  sockets,
		own:      own,
		changes:  make(chan Change, 16),
		wake:     make(chan struct{}, 1),
		schedule: schedule{pending: make(map[uint64]struct{})},
		status:   Status{Disabled: len(sockets) == 0},
		queue:    make(map[uint64]Change),
		lists:    rate.NewLimiter(listsPerSecond, listsBurst),
		statuses: rate.NewLimiter(statusesPerSecond, statusesBurst),
		lines:    rate.NewLimiter(rate.Every(time.Minute), linesBurst),
	}, nil
}

// Request asks for the name of a netns that has none: the runtime's list is read soon, and some
// times again, because CNI finishes before the runtime lists the pod. Requests are
// folded and limited in rate; a second request for one netns has no effect.
func (r *Resolver) Request(cookie uint64) {
	if len(r.sockets) == 0 || cookie == 0 || cookie == r.own {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.known[cookie]; !known && r.schedule.request(cookie, time.Now()) {
		r.wakeUp()
	}
}

// Relist asks for the runtime's list soon, at most once in 5 s because of this: something
// depends on the state of its sandboxes.
func (r *Resolver) Relist() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.relist(time.Now())
	r.wakeUp()
}

func (r *Resolver) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
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
	status.Named, status.Pending = len(r.known), len(r.schedule.pending)
	return status
}

// publish makes the names in the table known, and sends what is new as far as the reader has
// room; [Resolver.wait] sends the rest.
func (r *Resolver) publish() {
	known := r.table.named()
	r.mu.Lock()
	for cookie, change := range known {
		if old, ok := r.known[cookie]; !ok || !old.equal(change) {
			r.queue[cookie] = change
		}
		delete(r.schedule.pending, cookie)
	}
	r.known = known
	r.mu.Unlock()
	for cookie, change := range r.queue {
		if _, ok := known[cookie]; !ok {
			delete(r.queue, cookie)
			continue
		}
		select {
		case r.changes <- change:
			delete(r.queue, cookie)
		default:
		}
	}
}
