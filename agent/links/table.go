package links

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// scansApart: a netns that sends no event is scanned at every tenth resync. 250 scans twice a
// minute cost a tenth of a percent of a core.
const scansApart = 10

// table holds the veths into other namespaces, and the devices there that have no end on the node. It decides which of them are observed, what is due for
// them, and which events the agent gets. [Watcher] makes the system calls.
type table struct {
	log    *slog.Logger
	ignore func(name string) bool
	// reachable reports whether a path leads to the netns with that id.
	reachable func(nsid int) bool
	// signs returns the signs of uplinks. It reads them once after each change of host addresses.
	signs func() (uplinkSigns, error)

	routes     defaultRoutes      // at the last list
	devices    map[int]hostDevice // all of the node, by ifindex
	veths      map[int]*tracked   // by ifindex, or the number that stands for it
	lastInside int                // the last of these numbers
	full       bool               // there are too many, and that was logged
	generation uint32
	resyncs    int
	// events are not sent yet. Before a Removed event is sent, the observer has to be detached from the
	// interface. If the interface has no FirstName, the agent does not get the event.
	events        []Event
	unobservedDue bool // the list of unobserved veths may have changed
	searchDue     bool // a device may have come into a netns from one of the node, or on one
	found         findings
	hostDue       bool // what depends on the node's own addresses and devices may have changed, or could not be read
	routesDue     bool // the default routes may have changed
}

func newTable(log *slog.Logger, ignore func(string) bool, reachable func(int) bool) *table {
	return &table{
		log: log, ignore: ignore, reachable: reachable,
		devices: make(map[int]hostDevice), veths: make(map[int]*tracked), lastInside: math.MaxInt32,
	}
}

// handle applies one link message. Messages of the bridge family are about ports: their RTM_DELLINK
// means that a device left its bridge, and the VLANs of the port may have changed.
func (t *table) handle(update netlink.LinkUpdate, now time.Time) {
	index := int(update.Index)
	t.found.came(link(index))
	switch {
	case update.Family == unix.AF_BRIDGE:
		if veth := t.veths[index]; veth != nil {
			veth.portDue = true
		}
	case update.Header.Type == unix.RTM_DELLINK:
		// Also if the device moved to another netns. A tcx or XDP program moves with it, and until it is
		// detached it may record packets for the interface that has the new ifindex here.
		t.search(update.Link)
		delete(t.devices, index)
		t.remove(index, "")
	default:
		t.search(update.Link)
		t.addDevice(update.Link)
		t.update(update.Link, false, now)
	}
}

// list applies a complete list of links.
func (t *table) list(links []netlink.Link, now time.Time) {
	clear(t.devices)
	for _, link := range links {
		t.addDevice(link) // a bridge may come after its ports
	}
	for index, veth := range t.veths {
		if _, ok := t.devices[index]; !ok && veth.ns == nil {
			t.found.expect(foundInterface, link(index), now)
			t.remove(index, "")
		}
	}
	for _, l := range links {
		if t.update(l, true, now) {
			t.found.expect(foundInterface, link(l.Attrs().Index), now)
		}
	}
	for index, veth := range t.veths {
		veth.portDue = t.filters(veth) || veth.iface.Seen && !veth.announced() // its VLANs may not have been readable
		// Not every change sends an event: a new name of the netns does not.
		if !veth.iface.Seen || (t.resyncs+index)%scansApart == 0 {
			veth.resynced = veth.resynced || !veth.scans.due
			veth.rescan()
		}
	}
	t.resyncs++
	t.unobservedDue, t.full = true, t.full && t.inside() >= maxInside
}

// update applies the state of one link, and reports whether it differs from what was known of an interface. listed: the state comes from
// a list, not from an event.
func (t *table) update(link netlink.Link, listed bool, now time.Time) (changed bool) {
	attrs := link.Attrs()
	veth := t.veths[attrs.Index]
	switch {
	case !t.routes.leadsToNetns(link):
		t.remove(attrs.Index, "interface "+attrs.Name+" does not lead to a netns of pods any more")
		return veth != nil && !t.routes.devices[attrs.Index]
	case veth == nil:
		changed = true
	case veth.nsid != attrs.NetNsID || veth.peer != attrs.ParentIndex:
		t.remove(attrs.Index, "interface "+attrs.Name+" leads to another device")
		veth, changed = nil, true
	case veth.iface.State != Uplink && veth.observed() == t.ignore(attrs.Name):
		t.remove(attrs.Index, "the configuration says to ignore "+attrs.Name)
		veth = nil
	}
	master := t.devices[attrs.MasterIndex].name
	if veth == nil {
		netkit, isNetkit := link.(*netlink.Netkit)
		l3 := isNetkit && netkit.Mode == netlink.NETKIT_MODE_L3
		veth = &tracked{iface: Interface{Index: attrs.Index, Netkit: isNetkit, L3: l3, Listed: listed}, nsid: attrs.NetNsID, peer: attrs.ParentIndex}
		veth.update(attrs, master)
		t.add(veth, now)
		return changed
	}
	if veth.waits() {
		veth.wait(now)
	}
	if listed && t.resyncs == 0 {
		veth.iface.Listed = true // its event came between the subscription and the first list
	}
	t.unobservedDue = t.unobservedDue || !veth.observed() && veth.iface.Name != attrs.Name
	if changed = veth.update(attrs, master); changed {
		t.announce(veth)
	}
	if veth.iface.Up && veth.iface.View.PeerDown {
		veth.rescan() // that view is old. Perhaps nothing else tells that the peer is ready, and the pod must not rename it before that is seen
	}
	return changed
}

// add begins to observe a veth, or excludes it if its name is ignored.
func (t *table) add(veth *tracked, now time.Time) {
	name := veth.iface.Name
	if veth.ns != nil {
		name = veth.iface.Master
	}
	if t.ignore(name) {
		veth.scans = scans{}
		t.exclude(veth, Ignored, "the configuration says to ignore it")
		return
	}
	t.generation++
	veth.iface.Generation, veth.iface.State, veth.iface.Reason = t.generation, Pending, "its turn comes: interfaces are attached one after another"
	veth.scans, veth.portDue = newScans(now), true
	veth.attach, veth.waitUntil = pacer{due: true, next: now}, now.Add(maxQuiets*quiet)
	t.veths[veth.iface.Index] = veth
}

// exclude lists a veth as not observed.
func (t *table) exclude(veth *tracked, state State, reason string) {
	veth.iface.State, veth.iface.Reason, veth.attach = state, reason, pacer{}
	t.veths[veth.iface.Index] = veth
	t.unobservedDue = true
}

// remove removes a veth. An empty reason means that its interface is gone.
func (t *table) remove(index int, reason string) {
	veth := t.veths[index]
	if veth == nil {
		return
	}
	delete(t.veths, index)
	if !veth.observed() {
		t.unobservedDue = true
		return
	}
	gone := veth.iface
	reason = cmp.Or(reason, "interface "+gone.Name+" is gone")
	t.events = append(t.events, Event{Kind: Removed, Interface: &gone, Reason: reason})
}

// setState records the result of attaching, or of a check.
func (t *table) setState(veth *tracked, state State, reason string, now time.Time) {
	before := veth.iface.State
	if veth.iface.State, veth.iface.Reason = state, reason; state == Waiting && veth.early {
		veth.iface.State, veth.iface.Reason = Attached, ""
	}
	switch {
	case state == Failed:
		limit := maxAttachRetry
		if veth.detached || veth.told {
			limit = slowAttachRetry
		}
		veth.attach = pacer{due: true, next: now.Add(min(attachRetry<<veth.failures, limit))}
		veth.failures = min(veth.failures+1, 10)
	case state == Waiting && veth.createFrom.IsZero():
		veth.wait(now)
	case state == Waiting:
		veth.attach = pacer{due: true, next: veth.createFrom}
	default:
		veth.attach.due = false
	}
	if before != veth.iface.State {
		t.announce(veth)
	}
}

// toScan returns the veths whose scan is due. Those that were requested are first: a round of probes may wait for them. Of
// others, and of many in one netns, those are first that were scanned the longest time ago.
func (t *table) toScan(now time.Time) (due []*tracked) {
	for _, veth := range t.veths {
		if veth.scans.ready(now) {
			due = append(due, veth)
		}
	}
	slices.SortFunc(due, func(a, b *tracked) int {
		switch {
		case a.requested == b.requested:
			return a.iface.View.Taken.Compare(b.iface.View.Taken)
		case a.requested:
			return -1
		}
		return 1
	})
	return due
}

// scanned applies the result of a scan of the netns behind a veth.
func (t *table) scanned(veth *tracked, ref netns.Ref, view netns.View, err error, now time.Time) {
	veth.requested = false
	cost := view.Cost
	if veth.iface.Mute() != "" {
		cost = min(cost, max(maxMutePause/scanPauseFactor, cost/4))
	}
	veth.scans.done(now, cost, err != nil)
	if veth.iface.State == Uplink && veth.scans.unseen() {
		veth.scans.due = false // until the next resync
	}
	before := veth.iface.Seen
	if veth.resynced {
		t.resynced(veth, view, err, now)
	}
	if veth.ns != nil && (errors.Is(err, netns.ErrNoPeer) || veth.scans.unseen()) {
		t.remove(veth.iface.Index, "")
		veth.ns.scans.due = true // it may have moved, or come again
		return
	}
	switch {
	case err == nil:
		veth.found = true
		veth.iface.Seen, veth.iface.Netns, veth.iface.View = true, ref, view
		if !t.filters(veth) {
			veth.portDue, veth.iface.PortVLAN = false, 0
		}
	case veth.scans.unseen():
		veth.iface.Seen, veth.iface.Netns, veth.iface.View = false, netns.Ref{}, netns.View{}
	default:
		return
	}
	t.classify(veth, now)
	if before || veth.iface.Seen || !veth.announced() {
		t.announce(veth)
	}
}

// announce adds an event with the description of an interface, once that is complete: its netns was
// scanned or that failed for a while, and the VLAN of its port is known. The interface may be Pending.
func (t *table) announce(veth *tracked) {
	kind := Changed
	if !veth.announced() {
		i := &veth.iface
		if !veth.observed() || i.Seen && veth.portDue || !i.Seen && !veth.scans.unseen() {
			return
		}
		kind, i.FirstName = Added, i.Name
	}
	iface := veth.iface
	t.events = append(t.events, Event{Kind: kind, Interface: &iface})
}

// toAttach returns the veth to attach to next, nil if that is not due for any.
func (t *table) toAttach(now time.Time) (next *tracked) {
	for _, veth := range t.veths {
		if veth.attach.ready(now) && (next == nil || veth.attachedBefore(next)) {
			next = veth
		}
	}
	return next
}

// unannounced reports whether there is a listed interface that the agent has not got yet. It leaves out devices that have no end on
// the node: a pod can make many, and give them addresses that take long to list.
func (t *table) unannounced() bool {
	for _, veth := range t.veths {
		if veth.ns == nil && veth.iface.Listed && veth.observed() && !veth.announced() {
			return true
		}
	}
	return false
}

// next returns when the next thing is due for a veth, or at if that is earlier. It leaves out the veths
// that can be attached to at now.
func (t *table) next(now, at time.Time) time.Time {
	for _, veth := range t.veths {
		at = veth.portAgain.earlier(veth.scans.earlier(at))
		if !veth.attach.ready(now) {
			at = veth.attach.earlier(at)
		}
	}
	return at
}

// unobserved lists the veths that are not observed: those ignored, then uplinks.
func (t *table) unobserved() []Interface {
	var all []Interface
	for _, veth := range t.veths {
		if !veth.observed() {
			all = append(all, veth.iface)
		}
	}
	slices.SortFunc(all, func(a, b Interface) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Index, b.Index))
	})
	return all
}
