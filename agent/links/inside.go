package links

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// maxLists limits how many namespaces one turn of the watcher lists devices of, and so how long it takes.
const maxLists = 32

// maxInside limits the devices that have no end on the node, so that the interfaces of pairs have room among those that the observer
// attaches to ([bpf.Options]).
const maxInside = 2048

// nameTries is how often names are looked at that lead to no netns: the file is there before the mount, but there are files without one.
const nameTries = 8

// tooMany is why the devices beyond these limits are not observed.
var tooMany = fmt.Sprintf("at most %d devices of a pod and %d of a node are observed that have no end on the node", netns.MaxDevices, maxInside)

// inside finds the pods' devices that have no end on the node, because their packets go straight to a device of the node: macvlan,
// ipvlan and vlan; and those that cannot be observed: macvtap and ipvtap, and physical devices (SR-IOV).
type inside struct {
	log    *slog.Logger
	finder *netns.Finder
	// identify returns the id of a netns, and may give it one; ownNetns if that fails.
	identify   func(netnsFile *os.File) int
	namespaces map[uint64]*namespace // by inode
	names      scans                 // of the names of namespaces: no event tells of devices that have no end on the node
	search     pacer                 // for all namespaces
	all        bool                  // with lists of the devices of all: one may have come into any
	lists      int
}

// namespace is any netns but the node's own.
type namespace struct {
	ref     netns.Ref
	nsid    int  // its id in ours, ownNetns if it has none
	listed  bool // the netns was listed when the watcher began: its devices may be old
	scans   scans
	lists   int
	devices []netns.Device // at the last list
	// more and left count those beyond the limits for a netns and for the node, which are not observed.
	more, left int
	// nextScan is when the devices may be scanned again.
	nextScan time.Time
	resynced bool // a list is due because of a resync alone, and the watcher has not just begun
}

const (
	// minSearchPause is the least time between two searches for all namespaces, searchPauseFactor that in times of what the last one took,
	// and listPause that for each netns if the devices of all are listed: this takes 1/40 of a core at most.
	minSearchPause    = 500 * time.Millisecond
	searchPauseFactor = 50
	listPause         = 4 * time.Millisecond
)

// find finds all namespaces, and sets them. If it fails it is due again.
func (s *inside) find(resync bool) {
	began, expected := time.Now(), s.search.due || s.names.due
	refs, err := s.finder.Refs()
	pause := max(minSearchPause, searchPauseFactor*time.Since(began))
	if err != nil {
		s.search.pause(time.Now(), max(pause, maxRetry))
		s.search.due = true
		if resync {
			s.log.Warn("listing namespaces failed, trying again", "error", err)
		}
		return
	}
	if s.all {
		s.all, pause = false, max(pause, listPause*time.Duration(len(refs)))
		s.listAll()
	}
	s.search.pause(time.Now(), pause)
	s.setAll(refs, resync, time.Now())
	if expected {
		s.expected()
	}
}

// setAll sets all namespaces of the node. New ones are due. At resyncs each is due twice, because a new one may not have its devices yet,
// and then at every tenth: a node may have hundreds, and they send events.
func (s *inside) setAll(refs []netns.Ref, resync bool, now time.Time) {
	before := s.namespaces
	s.namespaces = make(map[uint64]*namespace, len(refs))
	for _, ref := range refs {
		ns := before[ref.Inode]
		if ns == nil || ns.ref.Name != ref.Name { // the kernel reuses inodes
			ns = &namespace{nsid: ownNetns, listed: s.lists == 0, scans: newScans(now)}
		} else if !ns.ref.Exists() { // its process ended, and perhaps the netns; its devices stay until the next list
			ns.nsid, ns.lists = ownNetns, 0
		}
		ns.ref = ref
		if isNew := ns != before[ref.Inode]; isNew || !ns.scans.due && (ns.nsid == ownNetns || resync && (ns.lists < 2 || (s.lists+int(ref.Inode))%scansApart == 0)) {
			ns.scans.due, ns.resynced = true, resync
		}
		s.namespaces[ref.Inode] = ns
	}
	if resync {
		s.lists++
	}
}

// has reports whether a netns that is known has this id, still or again. Its devices are listed again: its inode and its name may be
// another's by now, too.
func (s *inside) has(nsid int) bool {
	for _, ns := range s.namespaces {
		if ns.nsid != nsid {
			continue
		}
		if file, err := s.finder.Open(ns.ref, nsid); err == nil {
			_ = file.Close()
			ns.scans.due = true
			return true
		}
	}
	return false
}

// gone handles that the netns with an id ended. The kernel may have given the id to another since.
func (s *inside) gone(nsid int) {
	for inode, ns := range s.namespaces {
		if ns.nsid != nsid {
			continue
		}
		ns.nsid = ownNetns
		if ns.scans.due = ns.ref.Exists(); !ns.scans.due {
			delete(s.namespaces, inode)
		}
	}
	s.findNames() // its name may lead to another
}

// listAll schedules a list of the devices of every netns.
func (s *inside) listAll() {
	for _, ns := range s.namespaces {
		ns.scans.due, ns.resynced = true, false
	}
}

// expected notes that what the next lists of devices find is no finding of a resync.
func (s *inside) expected() {
	for _, ns := range s.namespaces {
		ns.resynced = false
	}
}

// findNames requests addNames.
func (s *inside) findNames() { s.names.due, s.names.failures = true, 0 }

// addNames adds namespaces with new names. They get an id, so that events tell when their devices come.
func (s *inside) addNames(now time.Time) {
	began := time.Now()
	known := make(map[string]uint64, len(s.namespaces))
	for _, ns := range s.namespaces {
		known[ns.ref.Path] = ns.ref.Inode
	}
	refs, unready, err := s.finder.NewNames(known)
	if err != nil {
		s.log.Debug("looking for new names of namespaces failed", "error", err)
	}
	for _, ref := range refs {
		s.search.due = s.search.due || known[ref.Path] != 0                        // a process may be in the netns that had the name
		if known := s.namespaces[ref.Inode]; known == nil || !known.ref.Exists() { // the kernel reuses inodes
			s.namespaces[ref.Inode] = &namespace{ref: ref, nsid: ownNetns, scans: newScans(now)}
		}
	}
	s.names.done(time.Now(), time.Since(began), unready && s.names.failures < nameTries)
}

// list lists the devices of namespaces that are due, at most of limit, and returns those that it has listed.
func (s *inside) list(now time.Time, limit int) (listed []*namespace) {
	for _, ns := range s.namespaces {
		if !ns.scans.ready(now) {
			continue
		}
		if limit--; limit < 0 {
			break
		}
		if !ns.ref.Exists() { // another process may be in it, and its name may lead to another
			ns.scans.due, s.search.due = false, true
			s.findNames()
			continue
		}
		began := time.Now()
		err := ns.list(s.identify)
		ns.scans.done(time.Now(), time.Since(began), err != nil)
		ns.lists++
		if err != nil {
			s.log.Debug("listing the devices of a netns failed", "netns", ns.ref.Label(), "error", err)
			continue
		}
		listed = append(listed, ns)
	}
	return listed
}

func (ns *namespace) list(identify func(*os.File) int) error {
	file, err := netns.Open(ns.ref.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	ns.nsid = identify(file) // before the list: no event tells of devices that come before the id
	known := make(map[int]bool, len(ns.devices))
	for _, d := range ns.devices {
		known[d.Index] = true
	}
	devices, more, err := netns.DevicesWithoutHostEnd(file, known)
	if err != nil {
		return err
	}
	ns.devices, ns.more = devices, more
	if ns.ref.Name == "" {
		// A netns without a name may be the root of another machine, as in a test.
		ns.devices = slices.DeleteFunc(ns.devices, func(d netns.Device) bool { return d.Kind == netns.Physical })
	}
	return nil
}

// next returns when something is due, at most at.
func (s *inside) next(at time.Time) time.Time {
	for _, ns := range s.namespaces {
		at = ns.scans.earlier(at)
	}
	return s.search.earlier(s.names.earlier(at))
}

// observable reports whether a device can be observed in its netns.
func (ns *namespace) observable(d netns.Device, supported bool) bool {
	return supported && ns.nsid != ownNetns && unobservable(d) == ""
}

// unobservable says why devices of a kind are observed nowhere, empty if they are.
func unobservable(d netns.Device) string {
	switch d.Kind {
	case netns.Physical:
		return "physical devices of pods cannot be observed"
	case "macvtap", "ipvtap":
		return "nobody can say which addresses a guest behind a " + d.Kind + " device has"
	}
	return ""
}

// unsupported lists the devices that cannot be observed. supported: the observer can be attached inside of a netns.
func (s *inside) unsupported(supported bool) (all []Interface) {
	for _, ns := range s.namespaces {
		for _, d := range ns.devices {
			if ns.observable(d, supported) {
				continue
			}
			reason := cmp.Or(unobservable(d), d.Kind+" devices can be observed from Linux 6.6 on, with --attach auto or tcx")
			all = append(all, Interface{Name: d.Name, Index: d.Index, State: Unsupported, Netns: ns.ref, Reason: reason})
		}
		if n := ns.more + ns.left; n > 0 {
			all = append(all, Interface{Name: fmt.Sprintf("%d more", n), State: Unsupported, Netns: ns.ref, Reason: tooMany})
		}
	}
	return all
}

// unsupportedNetkit lists the netkit devices of the node that cannot be observed: programs are attached to both ends of a pair by
// the primary one (drivers/net/netkit.c).
func unsupportedNetkit(links []netlink.Link) (all []Interface) {
	for _, link := range links {
		netkit, ok := link.(*netlink.Netkit)
		if attrs := link.Attrs(); ok && attrs.NetNsID >= 0 && !netkit.IsPrimary() {
			all = append(all, Interface{
				Name: attrs.Name, Index: attrs.Index, State: Unsupported, Reason: "the primary end of this netkit pair is not on the node",
			})
		}
	}
	return all
}

// inside counts the devices that have no end on the node.
func (t *table) inside() (n int) {
	for _, d := range t.veths {
		if d.ns != nil {
			n++
		}
	}
	return n
}

// setInside applies the list of the devices of a netns.
func (t *table) setInside(ns *namespace, supported bool, now time.Time) {
	t.unobservedDue, ns.left = true, 0
	before := make(map[int]*tracked)
	for _, d := range t.veths {
		// A netns that got the id of one that ended has other devices.
		if d.ns != nil && (d.ns == ns || d.nsid == ns.nsid) {
			before[d.peer] = d
		}
	}
	for _, d := range ns.devices {
		if !ns.observable(d, supported) {
			continue
		}
		parent := t.devices[d.Parent].name
		if d.VLAN != 0 {
			parent = fmt.Sprint(parent, ".", d.VLAN)
		}
		name := d.Name + "@" + parent // for people: the pod has chosen it
		ignored := t.ignore(parent)
		device := before[d.Index]
		if device != nil && device.ns == ns && device.nsid == ns.nsid && device.iface.Kind == d.Kind && device.observed() == !ignored {
			delete(before, d.Index)
			i := &device.iface
			if i.Name != name || i.Up != d.Up || !bytes.Equal(i.MAC, d.MAC) {
				i.Name, i.Master, i.ParentVLAN, i.Up, i.MAC = name, parent, d.VLAN, d.Up, d.MAC
				t.announce(device)
			}
			continue
		}
		if t.inside() >= maxInside {
			if ns.left++; !t.full {
				t.log.Warn("a device of a pod is not observed: there are too many of its kind on the node", "interface", name, "netns", ns.ref.Label(), "limit", maxInside)
			}
			t.full = true
			continue
		}
		if ns.resynced {
			t.found.expect(foundDevice, scanNetns(ns.nsid), now)
		}
		t.lastInside++
		t.add(&tracked{ns: ns, nsid: ns.nsid, peer: d.Index, iface: Interface{
			Name: name, Index: t.lastInside, MAC: d.MAC, Master: parent, Listed: ns.listed, Up: d.Up, Kind: d.Kind, InnerIndex: d.Index, ParentVLAN: d.VLAN,
		}}, now)
	}
	for _, gone := range before {
		if ns.resynced {
			t.found.expect(foundDevice, scanNetns(ns.nsid), now)
		}
		t.remove(gone.iface.Index, "")
	}
	ns.resynced = false
}

// findNamespaces finds all namespaces, with a list of their devices if a device may have come into one, unless it has to wait.
func (w *Watcher) findNamespaces(resync bool) {
	if w.table.searchDue {
		w.table.searchDue, w.inside.search.due, w.inside.all = false, true, true
	}
	if resync || w.inside.search.ready(time.Now()) {
		w.inside.find(resync)
	}
}

// listInside lists the devices that have no end on the node, of the namespaces where that is due.
func (w *Watcher) listInside(now time.Time) {
	for _, ns := range w.inside.list(now, maxLists) {
		w.table.setInside(ns, w.canAttachInside(), now)
		for _, device := range w.table.veths {
			// Another device may have got the index of one that was deleted.
			if device.ns == ns {
				w.check(device, nil, now)
			}
		}
	}
}

// canAttachInside reports whether the observer can be attached inside of a netns: for that it needs tcx.
func (w *Watcher) canAttachInside() bool {
	return w.opts.Observer != nil && w.opts.Observer.Mode() == bpf.TCX
}
