package links

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

const (
	// maxAttachPause limits the pauses of attachPause: 250 interfaces are to be observed within 12 s.
	maxAttachPause = 25 * time.Millisecond
	// maxDetachPauses limits their sum when the watcher ends: Kubernetes kills an agent that is not gone after
	// 30 s.
	maxDetachPauses = 6 * time.Second
	// minOverrunPause is the least time between two scans of all namespaces because events were lost.
	minOverrunPause = time.Second
)

// Options configures a [Watcher]. Zero durations mean the defaults.
type Options struct {
	Log      *slog.Logger
	Observer *bpf.Observer
	// Resync is how often all interfaces are listed, for changes that send no event (30 s).
	Resync time.Duration
	// LinkBuffer is the receive buffer of the link subscription in bytes (4 MiB, room for a
	// few thousand events).
	LinkBuffer int
}

// Watcher owns the list of interfaces. Run does all the work in one goroutine.
type Watcher struct {
	opts     Options
	events   chan Event
	requests requests
	ignore   atomic.Pointer[func(name string) bool]
	overruns atomic.Int64

	// Only Run uses the rest.
	updates              <-chan netlink.LinkUpdate // of the session
	table                *table
	finder               *netns.Finder
	attached             map[uint32]*bpf.Attachment // by generation
	pruneDue             bool                       // some were detached
	early, earlyFailed   bool                       // the socket on all devices is open; could not be opened
	releaseUntil         time.Time                  // not zero while programs are detached: when the last ones are, without pauses
	releasing            int                        // how many programs there were
	inside               inside
	names                *netns.NameWatch // nil between sessions, and if that failed
	netkit               []Interface      // those that cannot be observed
	attachPacer          pacer
	hostPacer, portPacer pacer        // lists of the node's own addresses, and of the VLANs of ports
	hostFailed           bool         // the last list of the node's own addresses
	hostResynced         bool         // the next one is due because of a resync alone
	hostHash             maphash.Hash // of the lists
	hostSum              uint64       // of the last list
	routesPacer          pacer        // lists of the default routes
	overrunPacer         pacer        // scans of all namespaces because events were lost
}

// New returns a Watcher for the calling thread's netns, in which Run must be
// called too.
func New(opts Options) (*Watcher, error) {
	if err := CanWatch(); err != nil {
		return nil, err
	}
	finder, err := netns.NewFinder()
	if err != nil {
		return nil, err
	}
	opts.Resync = cmp.Or(opts.Resync, 30*time.Second)
	opts.LinkBuffer = cmp.Or(opts.LinkBuffer, 4<<20)
	w := &Watcher{
		opts:     opts,
		events:   make(chan Event, 64),
		requests: requests{wake: make(chan struct{}, 1), set: make(map[any]bool)},
		finder:   finder,
		inside:   inside{log: opts.Log, finder: finder, identify: finder.Identify, names: newScans(time.Now())},
		attached: make(map[uint32]*bpf.Attachment),
	}
	w.ignore.Store(new(func(string) bool))
	ignored := func(name string) bool { ignore := *w.ignore.Load(); return ignore != nil && ignore(name) }
	reachable := func(nsid int) bool { _, ok := finder.Ref(nsid); return ok }
	w.table = newTable(opts.Log, ignored, reachable)
	return w, nil
}

// Events returns the channel of changes. The caller must read it until Run returns.
func (w *Watcher) Events() <-chan Event { return w.events }

// Refresh requests a scan of the netns behind the interface. It never blocks; requests for one
// interface are merged and limited in rate.
func (w *Watcher) Refresh(generation uint32) { w.requests.add(scanInterface(generation)) }

// Settled tells the watcher that the pod behind the interface is set up: no network plugin changes the interface any more. It never blocks.
func (w *Watcher) Settled(generation uint32) { w.requests.add(settled(generation)) }

// SetIgnore sets which host-side interfaces are excluded; nil and the default select none. The watcher detaches from these, and
// attaches to others. Safe for concurrent use; it does not block.
func (w *Watcher) SetIgnore(ignore func(name string) bool) {
	w.ignore.Store(&ignore)
	w.requests.add(relist{})
}

// Overruns returns how often the watcher lost netlink events and scanned everything again. Safe for
// concurrent use.
func (w *Watcher) Overruns() int { return int(w.overruns.Load()) }

// takeRequests schedules the requested scans, and reports whether a list of all links was requested.
func (w *Watcher) takeRequests() (relistAll bool) {
	taken := w.requests.take()
	// The kernel gives an id again at once, perhaps before this event of the netns that had it. Pairs that led there have their own events.
	maps.DeleteFunc(taken, func(request any, _ bool) bool {
		nsid, ok := request.(netnsGone)
		return ok && w.inside.has(int(nsid))
	})
	for _, veth := range w.table.veths {
		veth.checkDue = veth.checkDue || taken[checkPrograms(veth.iface.Index)]
		if taken[settled(veth.iface.Generation)] {
			veth.settle(time.Now())
		}
		if veth.ns != nil && taken[netnsGone(veth.nsid)] {
			w.table.remove(veth.iface.Index, "")
		} else if requested := taken[scanInterface(veth.iface.Generation)]; requested || taken[scanNetns(veth.nsid)] {
			veth.changed()
			veth.requested = veth.requested || requested
		}
	}
	for _, ns := range w.inside.namespaces {
		if ns.nsid != ownNetns && taken[scanNetns(ns.nsid)] {
			ns.scans.due, ns.resynced = true, false
		}
	}
	for request := range taken {
		w.table.found.came(request)
		if nsid, ok := request.(netnsGone); ok {
			w.inside.gone(int(nsid))
		}
	}
	if taken[scanNetns(ownNetns)] {
		w.scheduleHost()
	}
	w.table.routesDue = w.table.routesDue || taken[listRoutes{}]
	if taken[findNames{}] {
		w.inside.findNames()
		for _, veth := range w.table.veths { // the name may be that of a netns that was not found
			if veth.observed() && veth.scans.unseen() {
				veth.changed()
			}
		}
	}
	w.inside.search.due = w.inside.search.due || taken[findNamespaces{}]
	w.overrunPacer.due = w.overrunPacer.due || taken[scanEverything{}]
	if taken[relist{}] {
		w.inside.listAll()
	}
	return taken[relist{}]
}

// scheduleAll schedules a scan of every netns, lists of its devices and of the node's own addresses and routes, and a check of all programs.
func (w *Watcher) scheduleAll() {
	for _, veth := range w.table.veths {
		veth.changed()
		veth.checkDue = true
	}
	w.table.routesDue = true
	w.inside.listAll()
	w.scheduleHost()
}

// list compares all interfaces with the kernel's list, and lists the default routes.
func (w *Watcher) list(ctx context.Context, now time.Time) (all []netlink.Link, err error) {
	if all, err = listLinks(); err != nil {
		return nil, err
	}
	if w.table.routes, err = listDefaultRoutes(); err != nil {
		return nil, err
	}
	w.scheduleHost()
	w.table.list(all, now)
	w.flush(ctx)
	return all, nil
}

// resync compares all interfaces and programs with the kernel's.
func (w *Watcher) resync(ctx context.Context, now time.Time) error {
	before, hostDue := w.table.routes, w.hostPacer.due && !w.hostResynced
	all, err := w.list(ctx, now)
	if err != nil {
		return err
	}
	w.hostResynced = !hostDue && !w.table.found.off
	if !maps.Equal(before.devices, w.table.routes.devices) || !maps.Equal(before.sources, w.table.routes.sources) {
		w.table.found.expect(foundRoute, listRoutes{}, now)
	}
	byIndex := make(map[int]netlink.Link, len(all))
	for _, link := range all {
		byIndex[link.Attrs().Index] = link
	}
	for _, veth := range w.table.veths {
		switch asked := w.check(veth, byIndex[veth.iface.Index], now); {
		case asked && veth.iface.State == Failed:
			w.table.found.expect(foundProgram, checkPrograms(veth.iface.Index), now)
		case asked:
			veth.failures = 0
		}
	}
	if w.pruneDue { // not with every detach, because many pods may end at once
		w.pruneDue = false
		if err := w.opts.Observer.Prune(); err != nil {
			w.opts.Log.Warn("addresses of interfaces that are gone could not be removed from the kernel's table; the next interface that goes tries again", "error", err)
		}
	}
	w.watchDirectories()
	w.netkit = unsupportedNetkit(all)
	w.findNamespaces(true)
	w.listInside(now)
	return nil
}

// work does what is due at now, and returns when to call it again: when something is due, at most next.
// Pauses count from the end of each action, which may be seconds after now.
func (w *Watcher) work(ctx context.Context, now, next time.Time) time.Time {
	w.flush(ctx) // first: the kernel may reuse an ifindex
	if w.overrunPacer.ready(now) {
		w.overrunPacer.pause(now, minOverrunPause)
		w.overruns.Add(1)
		w.scheduleAll()
	}
	if w.table.routesDue {
		w.routesPacer.due = true
		w.table.found.came(listRoutes{})
	}
	w.table.routesDue = false
	if w.routesPacer.ready(now) {
		w.listRoutes(ctx, now)
	}
	if w.table.hostDue {
		w.table.hostDue = false
		w.retryHost(now)
	}
	for _, veth := range w.table.veths {
		if veth.checkDue {
			veth.checkDue = false
			w.checkEvent(veth, now)
		}
	}
	if w.inside.names.ready(now) {
		w.watchDirectories()
		w.inside.addNames(now)
	}
	if w.table.searchDue || w.inside.search.ready(now) {
		w.findNamespaces(false)
	}
	w.listInside(now)
	w.flush(ctx) // before attaching: another name of a netns replaces its devices
	if veth := w.table.toAttach(now); veth != nil && !w.stopping() && !w.attachPacer.next.After(now) && !w.starting() {
		began := time.Now()
		state, reason := w.attach(veth)
		w.table.setState(veth, state, reason, time.Now())
		w.attachPacer.pause(time.Now(), attachPause(began))
	}
	if w.opts.Observer != nil && !w.stopping() {
		w.observeEarly() // after the attach, which may have been the last that it was open for
	}
	w.scanDue(ctx, now)
	ports := w.table.portsDue(now)
	w.portPacer.due = len(ports) > 0
	if w.portPacer.ready(now) {
		began := time.Now()
		w.table.readPorts(ports, began, netlink.BridgeVlanList)
		w.portPacer.pauseAfter(began, portPauseFactor)
	}
	unannounced := w.table.unannounced()
	hostReady := w.hostPacer.ready(now) && !unannounced
	if hostReady { // first the uplinks: their changes are part of the events below
		for _, veth := range w.table.veths {
			w.table.classify(veth, now)
		}
	}
	w.flush(ctx)
	if w.table.unobservedDue {
		w.table.unobservedDue = false
		w.emit(ctx, Event{Kind: Unobserved, Unobserved: slices.Concat(w.table.unobserved(), w.netkit, w.inside.unsupported(w.canAttachInside()))})
	}
	if hostReady { // last: the first list of host addresses tells the agent that all interfaces were sent
		began := time.Now()
		err := w.listHost(ctx)
		w.hostPacer.pauseAfter(began, hostPauseFactor)
		if err != nil {
			w.retryHost(time.Now())
		}
		if failed := err != nil; failed != w.hostFailed {
			w.hostFailed = failed
			if failed {
				w.opts.Log.Warn("listing the node's own addresses failed, trying again every second", "error", err)
			}
		}
	}
	w.attachPacer.due = !w.starting() && !w.stopping() && w.table.toAttach(now) != nil
	for _, p := range []*pacer{&w.attachPacer, &w.overrunPacer, &w.portPacer, &w.routesPacer} {
		next = p.earlier(next)
	}
	if !unannounced { // else a scan or the VLANs of ports come first
		next = w.hostPacer.earlier(next)
	}
	next = w.table.found.settle(w.opts.Log, time.Now(), next)
	return w.inside.next(w.table.next(now, next))
}

// starting reports whether the agent still lacks interfaces that were there when the watcher started. Attaching waits for those, because
// what their first scans find was there before.
func (w *Watcher) starting() bool { return w.hostPacer.next.IsZero() && w.table.unannounced() }

// scanDue does the scans that are due. After each of them others may come first: one that was requested, or a change of a link, because
// an interface that has just become the port of another device is in another network.
func (w *Watcher) scanDue(ctx context.Context, now time.Time) {
	for _, veth := range w.table.toScan(now) {
		w.scan(veth)
		w.flush(ctx)
		if len(w.requests.wake) > 0 || len(w.updates) > 0 {
			return
		}
	}
}

// watchDirectories watches the directories of names that were made since.
func (w *Watcher) watchDirectories() {
	if w.names == nil {
		return
	}
	if err := w.names.AddDirectories(); err != nil {
		w.opts.Log.Warn("new namespaces are found at the next resync only", "error", err)
	}
}

// attachPause is the pause after attaching or detaching began, so that others who need RTNL have it most of the
// time. For tcx the kernel waits for RCU under RTNL, about 18 ms.
func attachPause(began time.Time) time.Duration { return min(time.Since(began)*5/4, maxAttachPause) }

// scan enters the netns behind a veth and lists its addresses.
func (w *Watcher) scan(veth *tracked) {
	if veth.ns != nil {
		// All of one netns wait for each other: a pod may have many such devices.
		if time.Now().Before(veth.ns.nextScan) {
			veth.scans.next = veth.ns.nextScan
			return
		}
		defer func() { veth.ns.nextScan = veth.scans.next }()
	}
	age := time.Duration(0)
	if veth.scans.retry() == maxRetry { // there may be many of these, such as uplinks
		age = maxRetry / 2
	}
	ref, view, err := w.finder.Scan(veth.nsid, veth.peer, age)
	if errors.Is(err, netns.ErrTooSoon) {
		veth.scans.next = time.Now().Add(netns.SearchPause)
		return
	}
	if err != nil {
		w.opts.Log.Debug("scanning a netns failed", "interface", veth.iface.Name, "failures", veth.scans.failures, "error", err)
	}
	w.table.scanned(veth, ref, view, err, time.Now())
}

// flush detaches from removed interfaces and sends the table's events to the agent.
func (w *Watcher) flush(ctx context.Context) {
	events := w.table.events
	w.table.events = nil
	for _, event := range events {
		if event.Kind == Removed {
			event.Refused = w.detach(event.Interface)
			if event.Interface.FirstName == "" {
				continue // the agent never got an Added event for it
			}
		}
		w.emit(ctx, event)
	}
}

func (w *Watcher) emit(ctx context.Context, event Event) {
	select {
	case w.events <- event:
	case <-ctx.Done():
	}
}
