// Package pods reads from the node's container runtime, over its CRI socket, which pod a netns
// belongs to and what CNI reported about it; without a runtime, from libcni's cache. It owns the connection and the
// list of sandboxes, and knows nothing of interfaces, packets or conflicts.
//
// Pod names are optional. Whatever the runtime does, no method blocks, and Run does not end. What it
// sends is limited and validated.
package pods

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Options configures a [Resolver]. Zero durations mean the defaults.
type Options struct {
	Log *slog.Logger
	// Socket is the path of the CRI socket, with or without "unix://". Empty means
	// [DefaultSockets]; "none" or "off" disables names.
	Socket string
	// EngineSocket is the path of the socket of a container engine without CRI. Empty means [DefaultEngineSockets]; "none" or "off" has
	// containers named by their ids.
	EngineSocket string
	// Cache is the folder of libcni's cache on the node ([books.CacheDir]).
	Cache string
	// Resync is how often the runtime's list is read when no name is requested (1 min).
	Resync time.Duration
	// MaxBackoff is the longest pause between attempts to connect (30 s).
	MaxBackoff time.Duration
}

// Change is the name of a netns.
type Change struct {
	Cookie uint64 // the netns ([netns.Cookie])
	Pod    detector.Pod
	// CreatedAt is when the runtime made the sandbox, on this process's clock, which steps of the wall
	// clock do not change. Zero if it is in the future, or before the boot.
	CreatedAt time.Time
	// ListedAt is when the engine of a container was asked for Result.
	ListedAt time.Time
	Sandbox  detector.Sandbox
	// IPs are the addresses that CNI reported to the runtime. They may be wrong: dupip probes
	// them, but they are never evidence.
	IPs []netip.Addr
	// Result is what CNI reported about the pod's primary network, nil if that is not known. It does not change.
	Result *books.Result
}

func (c Change) equal(other Change) bool {
	return c.Pod == other.Pod && c.Sandbox == other.Sandbox && c.CreatedAt.Equal(other.CreatedAt) && c.ListedAt.Equal(other.ListedAt) &&
		slices.Equal(c.IPs, other.IPs) && c.Result == other.Result
}

// Status describes a [Resolver]. All texts are printable and short. Socket is the last path in use, Error empty after the next
// success.
type Status struct {
	document.RuntimeStatus
	Disabled bool // by the configuration
	Named    int  // namespaces with a name
	Pending  int  // namespaces whose pod was not found; those without a pod stay
}

// Sandboxes is the runtime's list. It does not change.
type Sandboxes struct {
	// Ready has all sandboxes by id, and whether they are ready.
	Ready map[string]bool
	// Listed is when the list was requested; zero without one, and after the runtime was lost.
	Listed time.Time
	// Complete: the list has all sandboxes of the runtime. It has not if there are too many, and libcni's cache never has.
	Complete bool
	// Netns has the cookies of the namespaces that sandboxes have, and whether one of these is ready. Settled: it has all of them.
	Netns   map[uint64]bool
	Settled bool
	// None: there is no runtime, and never was one.
	None bool
}

// Resolver maps netns to pods. Create it with [New]; Run it once. The other methods are
// safe for concurrent use and never block.
type Resolver struct {
	opts    Options
	sockets []string      // in order of preference, none if disabled
	own     uint64        // cookie of the node's netns
	changed chan struct{} // has a value when there are changes

	mu        sync.Mutex
	known     map[uint64]Change // by cookie, those of containers, too
	changes   map[uint64]Change // those that were not taken yet
	hostEnds  map[string]uint64 // cookies by the host ends that results name
	sandboxes map[uint64]Change // those of known that are no containers
	schedule  schedule
	status    Status
	listed    Sandboxes
	none      bool // see Sandboxes.None
	confDir   string

	containers *containers
	// The rest is Run's own.
	cache                 *books.Cache
	table                 table
	lists, statuses, logs *rate.Limiter
}

// New returns a Resolver for the pods of the calling thread's node. The error is about the form of the
// path: New does not connect.
func New(opts Options) (*Resolver, error) {
	sockets, err := parseSocket(opts.Socket, DefaultSockets)
	if err != nil {
		return nil, fmt.Errorf("CRI %w", err)
	}
	engines, err := parseSocket(opts.EngineSocket, DefaultEngineSockets)
	if err != nil {
		return nil, fmt.Errorf("engine %w", err)
	}
	containers, err := newContainers(opts.Log, engines)
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
		changed:  make(chan struct{}, 1),
		changes:  make(map[uint64]Change),
		schedule: makeSchedule(),
		status:   Status{Disabled: len(sockets) == 0},

		containers: containers,

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
	if cookie == 0 || cookie == r.own {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.known[cookie]; known {
		return
	}
	now := time.Now()
	if len(r.sockets) > 0 {
		r.schedule.request(cookie, now)
	}
	if r.status.Connected {
		now = now.Add(criFirst)
	}
	r.containers.schedule.request(cookie, now)
}

// EngineDelay is how long after a container got an address its engine may not list it: Docker joins the network first.
const EngineDelay = 3 * time.Second

// Readdressed asks the engine of a container, no earlier than at a time, which addresses it has given it.
func (r *Resolver) Readdressed(cookie uint64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers.readdressed(cookie, at)
}

// Renew is Request for a netns that may have been requested before: the first lists come quickly again.
func (r *Resolver) Renew(cookie uint64) {
	r.mu.Lock()
	r.forget(cookie)
	r.mu.Unlock()
	r.Request(cookie)
}

// Relist requests the runtime's list, for the state of its sandboxes, and that of containers, at most once in 2 s.
func (r *Resolver) Relist() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.relist(time.Now())
	if len(r.containers.found) > 0 {
		r.containers.schedule.relist(time.Now())
	}
}

// forget has a netns requested no longer. Call it with the lock.
func (r *Resolver) forget(cookie uint64) {
	r.schedule.forget(cookie)
	r.containers.schedule.forget(cookie)
}

// signal puts a value into a channel with room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Pod returns the name of a netns, or false if it has none. Do not change the slice. Pod returns a name
// before Changes does.
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

// Changed returns a channel that has a value when there are new names.
func (r *Resolver) Changed() <-chan struct{} { return r.changed }

// Changes returns names that no earlier call has returned, so many at most, by cookie: the latest one of each netns. The end of a sandbox is
// no change: its netns ends, too.
func (r *Resolver) Changes(most int) map[uint64]Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := make(map[uint64]Change)
	for cookie, change := range r.changes {
		if len(changes) == most {
			signal(r.changed)
			break
		}
		changes[cookie] = change
		delete(r.changes, cookie)
	}
	return changes
}

// Sandboxes returns the runtime's last list.
func (r *Resolver) Sandboxes() Sandboxes {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.listed
	last.None = r.none || len(r.sockets) == 0
	return last
}

// Status returns the state of the connection.
func (r *Resolver) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	status.Named, status.Pending = len(r.known), len(r.schedule.pending)
	status.Engines = r.containers.status
	return status
}

// ConfDir returns the folder of the node with CNI's networks, as the runtime says it, or the usual one.
func (r *Resolver) ConfDir() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.confDir, books.ConfDir)
}

// publish publishes the names of the table.
func (r *Resolver) publish() {
	sandboxes := r.table.named()
	namespaces, settled := r.table.namespaces()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed.Netns, r.listed.Settled, r.sandboxes = namespaces, settled, sandboxes
	r.merge()
}

// merge publishes the names of sandboxes, and those of containers where there is no sandbox. Call it with the lock.
func (r *Resolver) merge() {
	known := make(map[uint64]Change)
	maps.Copy(known, r.containers.found)
	maps.Copy(known, r.sandboxes)
	for cookie, change := range known {
		if old, ok := r.known[cookie]; !ok || !old.equal(change) {
			r.changes[cookie] = change
		}
		if change.Pod.Engine == "" { // that of a container may be one of a pod, too
			r.forget(cookie)
		}
	}
	r.known, r.hostEnds = known, make(map[string]uint64, len(known))
	for cookie, change := range known {
		if change.Result != nil && !change.Sandbox.Stopped { // the name may be that of the next sandbox, too
			for _, name := range change.Result.HostEnds {
				r.hostEnds[name] = cookie
			}
		}
	}
	maps.DeleteFunc(r.changes, func(cookie uint64, _ Change) bool { return known[cookie].Cookie == 0 })
	if len(r.changes) > 0 {
		signal(r.changed)
	}
}
