// Package pods reads from the node's container runtime, over its CRI socket, which pod a netns
// belongs to and what CNI reported about it; without a runtime, from libcni's cache. It owns the connection and the
// list of sandboxes, and knows nothing of interfaces, packets or conflicts.
//
// Pod names are optional. Whatever the runtime does, no method blocks, and Run does not end. What it
// sends is limited and validated.
package pods

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
)

// Options configures a [Resolver]. Zero durations mean the defaults.
type Options struct {
	Log *slog.Logger
	// Socket is the path of the CRI socket, with or without "unix://". Empty means
	// [DefaultSockets]; "none" or "off" disables names.
	Socket string
	// Cache is the folder of libcni's cache on the node ([books.CacheDir]).
	Cache string
	// Resync is how often the runtime's list is read when no name is requested (1 min).
	Resync time.Duration
	// MaxBackoff is the longest pause between attempts to connect (30 s).
	MaxBackoff time.Duration
}

// Change is the name of a netns.
type Change struct {
	Cookie uint64 // the netns (SO_NETNS_COOKIE)
	Pod    detector.Pod
	// CreatedAt is when the runtime made the sandbox, on this process's clock, which steps of the wall
	// clock do not change. Zero if it is in the future, or before the boot.
	CreatedAt time.Time
	Sandbox   detector.Sandbox
	// IPs are the addresses that CNI reported to the runtime. They may be wrong: dupip probes
	// them, but they are never evidence.
	IPs []netip.Addr
	// Result is what CNI reported about the pod's primary network, nil if that is not known. It does not change.
	Result *books.Result
}

func (c Change) equal(other Change) bool {
	return c.Pod == other.Pod && c.Sandbox == other.Sandbox && c.CreatedAt.Equal(other.CreatedAt) &&
		slices.Equal(c.IPs, other.IPs) && c.Result == other.Result
}

// Status describes a [Resolver]. All texts are printable and short.
type Status struct {
	Disabled         bool   // by the configuration
	Socket           string // the last path in use
	Runtime, Version string // of the runtime, as it reports them
	Connected        bool   // the runtime responds
	LastError        string // empty after the next success
	Sandboxes        int    // in the runtime's list
	Omitted          int    // of these, because there are too many: their pods have no names
	Named            int    // namespaces with a name
	Pending          int    // namespaces whose pod was not found; those without a pod stay
	CacheError       string // why libcni's cache cannot be read, empty if it can or there is none
}

// Sandboxes is the runtime's list. It does not change.
type Sandboxes struct {
	// Ready has all sandboxes by id, and whether they are ready.
	Ready map[string]bool
	// Listed is when the list was requested; zero without one, and after the runtime was lost.
	Listed time.Time
	// Complete: the list has all sandboxes of the runtime. It has not if there are too many, and libcni's cache never has.
	Complete bool
}

// Resolver maps netns to pods. Create it with [New]; Run it once. The other methods are
// safe for concurrent use and never block.
type Resolver struct {
	opts    Options
	sockets []string // in order of preference, none if disabled
	own     uint64   // cookie of the node's netns
	changes chan Change
	wake    chan struct{} // has a value when the schedule may have changed

	mu       sync.Mutex
	known    map[uint64]Change // by cookie
	hostEnds map[string]uint64 // cookies by the host ends that results name
	schedule schedule
	status   Status
	listed   Sandboxes

	// The rest is Run's own.
	queue                 map[uint64]Change // to be sent, by cookie
	cache                 *books.Cache
	table                 table
	lists, statuses, logs *rate.Limiter
}

// New returns a Resolver for the pods of the calling thread's node. The error is about the form of the
// path: New does not connect.
func New(opts Options) (*Resolver, error) {
	sockets, err := parseSocket(opts.Socket)
	if err != nil {
		return nil, err
	}
	own, err := netns.Cookie()
	if err != nil {
		return nil, err
	}
	silenceGRPC()
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
		cache:    books.NewCache(cmp.Or(opts.Cache, books.CacheDir)),
		lists:    rate.NewLimiter(listsPerSecond, listsBurst),
		statuses: rate.NewLimiter(statusesPerSecond, statusesBurst),
		logs:     rate.NewLimiter(rate.Every(time.Minute), logBurst),
	}, nil
}

// Request requests the name of a netns that has none: Run reads the runtime's list soon, and a few
// times again, because the runtime lists a pod after CNI has finished. Requests are merged and limited
// in rate; a second request for one netns has no effect.
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

// Relist requests the runtime's list, for the state of its sandboxes, at most once in 2 s.
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

// Pod returns the name of a netns, or false if it has none. Do not change the slice. Pod returns a name
// before Changes sends it.
func (r *Resolver) Pod(cookie uint64) (Change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change, ok := r.known[cookie]
	return change, ok
}

// ByHostEnd returns the pod whose result names a host end, or false if there is none.
func (r *Resolver) ByHostEnd(name string) (Change, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cookie, ok := r.hostEnds[name]
	return r.known[cookie], ok
}

// Changes returns the channel of new names. A slow reader gets the latest name of each netns, in no
// order. The end of a sandbox is not sent: its netns ends, too.
func (r *Resolver) Changes() <-chan Change { return r.changes }

// Sandboxes returns the runtime's last list.
func (r *Resolver) Sandboxes() Sandboxes {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

// Status returns the state of the connection.
func (r *Resolver) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	status.Named, status.Pending = len(r.known), len(r.schedule.pending)
	return status
}

// publish publishes the names of the table, and sends new ones as long as the channel has room;
// [Resolver.wait] sends the rest.
func (r *Resolver) publish() {
	known := r.table.named()
	r.mu.Lock()
	for cookie, change := range known {
		if old, ok := r.known[cookie]; !ok || !old.equal(change) {
			r.queue[cookie] = change
		}
		delete(r.schedule.pending, cookie)
	}
	r.known, r.hostEnds = known, make(map[string]uint64, len(known))
	for cookie, change := range known {
		if change.Result != nil && !change.Sandbox.Stopped { // the name may be that of the next sandbox, too
			for _, name := range change.Result.HostEnds {
				r.hostEnds[name] = cookie
			}
		}
	}
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
