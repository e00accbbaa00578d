package links

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/internal/testneeds"
)

// The devices of a netns are listed twice when it is new, and then at every tenth resync, because a node may have
// hundreds. Those that are added later are found.
func TestNamespacesInTurn(t *testing.T) {
	pod := ownnetns.NewPod(t)
	inode := inodeOf(t, pod)
	w := newWatcher(t)
	now := time.Now()
	resync := func() {
		t.Helper()
		now = now.Add(time.Second) // two lists have a pause between them
		if err := w.resync(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 3 * scansApart
	for range rounds {
		resync()
	}
	if lists := w.inside.namespaces[inode].lists; lists < 2 || lists > 2+rounds/scansApart {
		t.Errorf("%d lists in %d resyncs", lists, rounds)
	}

	parent := newDevice(t, "parent")
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.Namespace = "late", parent, netlink.NsPid(pod.Pid)
	if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
		t.Fatal(err)
	}
	for range scansApart {
		resync()
	}
	late := func() bool {
		return slices.ContainsFunc(w.inside.unsupported(false), func(i Interface) bool { return i.Name == "late" && i.State == Unsupported })
	}
	if !late() {
		t.Errorf("a device that was added later is not found after %d resyncs: %+v", scansApart, w.inside.unsupported(false))
	}
	resync()
	if !late() {
		t.Error("it is not listed without a list")
	}
	path := w.inside.namespaces[inode].ref.Path
	pod.Delete()
	resync()
	if ns := w.inside.namespaces[inode]; ns != nil && ns.ref.Path == path { // the inode may be another's by now
		t.Error("a deleted netns is remembered")
	}
}

// A device that comes before the netns has an id sends no event: the list comes after the id.
func TestDeviceBeforeID(t *testing.T) {
	parent := newDevice(t, "parent")
	pod := ownnetns.NewPod(t)
	name := attachName(t, pod)
	w := newWatcher(t)
	identify := func(file *os.File) int {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex, attrs.Namespace = "late", parent, netlink.NsPid(pod.Pid)
		if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
			t.Error(err)
		}
		return w.finder.Identify(file)
	}
	ns := &namespace{ref: netns.Ref{Path: "/run/netns/" + name, Name: name}, nsid: ownNetns}
	if err := ns.list(identify); err != nil || ns.nsid == ownNetns || len(ns.devices) != 1 || ns.devices[0].Name != "late" {
		t.Errorf("%+v, error %v, want the device that came just before the id", ns, err)
	}
}

// inodeOf returns the inode of a pod's netns.
func inodeOf(t *testing.T, pod *ownnetns.Pod) uint64 {
	t.Helper()
	info, err := pod.Open(t).Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// newDevice adds a device until the end of the test, and returns its index.
func newDevice(t *testing.T, name string) (index int) {
	t.Helper()
	testneeds.Root(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	device := &netlink.Veth{LinkAttrs: attrs, PeerName: "other"}
	if err := netlink.LinkAdd(device); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(device) })
	return device.Attrs().Index
}

// attachName gives the netns of a pod a name until the end of the test.
func attachName(t *testing.T, pod *ownnetns.Pod) (name string) {
	t.Helper()
	name = fmt.Sprint("links-test-", os.Getpid())
	if out, err := exec.Command("ip", "netns", "attach", name, fmt.Sprint(pod.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	return name
}

// newWatcher returns a watcher that does not run.
func newWatcher(t *testing.T) *Watcher {
	t.Helper()
	w, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.finder.Close)
	return w
}

// The kernel gives the inode of a netns that ended to the next one at once.
func TestInodeOfAnother(t *testing.T) {
	pod := ownnetns.NewPod(t)
	inode := inodeOf(t, pod)
	name := attachName(t, pod)
	w := newWatcher(t)
	w.inside.namespaces = map[uint64]*namespace{inode: {ref: netns.Ref{Path: "/run/netns/ended", Inode: inode, Name: "ended"}, nsid: 7}}
	w.inside.addNames(time.Now())
	if ns := w.inside.namespaces[inode]; ns.ref.Name != name || ns.nsid != ownNetns {
		t.Errorf("%+v, want the one named %s", ns, name)
	}
}

// A netns without a name that got the inode of one that ended is listed twice, too.
func TestInodeOfAnotherWithoutName(t *testing.T) {
	pod := ownnetns.NewPod(t)
	const inode = 1
	before := netns.Ref{Path: pod.Path(), Inode: inode} // as if its process had ended: no path leads to that inode
	ns := &namespace{ref: before, nsid: 7, lists: 2}
	s := inside{namespaces: map[uint64]*namespace{inode: ns}, lists: 1}
	now := netns.Ref{Path: "/proc/2/ns/net", Inode: inode, Pid: 2}
	if s.setAll([]netns.Ref{now}, true, time.Now()); !ns.scans.due || ns.lists != 0 || ns.nsid != ownNetns || ns.ref != now {
		t.Errorf("%+v", ns)
	}
}

// When the id of a netns is gone, the netns is forgotten, unless another one has got the id.
func TestNetnsGone(t *testing.T) {
	pod := ownnetns.NewPod(t)
	w := newWatcher(t)
	here := inodeOf(t, pod)
	w.inside.namespaces = map[uint64]*namespace{
		here: {ref: netns.Ref{Path: pod.Path(), Inode: here}, nsid: 7},
		1:    {ref: netns.Ref{Path: "/run/netns/ended", Inode: 1}, nsid: 7},
		2:    {ref: netns.Ref{Path: "/run/netns/other", Inode: 2}, nsid: 8},
	}
	w.requests.add(netnsGone(7))
	w.takeRequests()
	if all := w.inside.namespaces; len(all) != 2 || all[here] == nil || !all[here].scans.due || all[here].nsid != ownNetns || all[2] == nil || !w.inside.names.due {
		t.Errorf("%+v", all)
	}
}

// The id of a netns that ended is another's before the event of its end is handled: the other one stays, and its devices are listed again.
// What led to the one that ended is not scanned, because it would be found in the other one.
func TestNetnsGoneLate(t *testing.T) {
	pod := ownnetns.NewPod(t)
	w := newWatcher(t)
	here := inodeOf(t, pod)
	ns := &namespace{ref: netns.Ref{Path: pod.Path(), Inode: here}}
	file, err := netns.Open(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if ns.nsid = w.finder.Identify(file); ns.nsid < 0 {
		t.Fatal("the netns got no id")
	}
	w.inside.namespaces = map[uint64]*namespace{here: ns}
	device := &tracked{ns: ns, nsid: ns.nsid, iface: Interface{Index: 1}}
	pair := &tracked{nsid: ns.nsid, iface: Interface{Index: 2}}
	w.table.veths[1], w.table.veths[2] = device, pair
	w.requests.add(netnsGone(ns.nsid))
	w.takeRequests()
	if w.table.veths[1] != device || w.inside.namespaces[here] != ns || ns.nsid < 0 || !ns.scans.due || pair.scans.due {
		t.Errorf("%+v, %+v, %+v", ns, device, pair)
	}
}

// The devices beyond the limit of the node are counted, and a warning is logged once, and again when the limit was not reached in between.
func TestMaxInside(t *testing.T) {
	h := newHarness(t)
	h.devices[9] = hostDevice{name: "up0"}
	others := new(namespace)
	for index := range maxInside - 1 {
		h.veths[index] = &tracked{iface: Interface{Index: index}, ns: others}
	}
	ns := &namespace{nsid: 1, devices: []netns.Device{{Name: "a", Index: 2, Kind: "macvlan", Parent: 9}, {Name: "b", Index: 3, Kind: "macvlan", Parent: 9}}}
	s := inside{namespaces: map[uint64]*namespace{1: ns}}
	h.setInside(ns, true, h.now)
	all := s.unsupported(true)
	if len(all) != 1 || all[0].Name != "1 more" || all[0].Reason != tooMany || h.inside() != maxInside || !h.full {
		t.Errorf("%d are observed, unsupported %+v", h.inside(), all)
	}
	for index := range 10 {
		h.remove(index, "")
	}
	h.list(nil, h.now)
	h.setInside(ns, true, h.now)
	if all := s.unsupported(true); len(all) != 0 || h.full {
		t.Errorf("unsupported %+v after others are gone", all)
	}
}

// Of a VLAN device of a pod the VLAN is part of its name. What guests send by macvtap cannot be verified, so it is counted only.
func TestKindsInside(t *testing.T) {
	h := newHarness(t)
	h.devices[9] = hostDevice{name: "eth1"}
	ns := &namespace{nsid: 1, devices: []netns.Device{
		{Name: "net1", Index: 2, Kind: "vlan", VLAN: 100, Parent: 9}, {Name: "net2", Index: 3, Kind: "macvtap", Parent: 9}, {Name: "net3", Index: 4, Kind: netns.Physical},
	}}
	s := inside{namespaces: map[uint64]*namespace{1: ns}}
	h.setInside(ns, true, h.now)
	for _, d := range h.veths {
		if i := d.iface; i.Name != "net1@eth1.100" || i.Master != "eth1.100" || i.ParentVLAN != 100 || i.Kind != "vlan" || len(h.veths) != 1 {
			t.Errorf("%+v", i)
		}
	}
	for supported, want := range map[bool][]string{
		true:  {"net2: nobody can say which addresses a guest behind a macvtap device has", "net3: physical devices of pods cannot be observed"},
		false: {"net1: vlan devices can be observed from Linux 6.6 on, with --attach auto or tcx", "net2: nobody can say which addresses a guest behind a macvtap device has", "net3: physical devices of pods cannot be observed"},
	} {
		var got []string
		for _, i := range s.unsupported(supported) {
			got = append(got, i.Name+": "+i.Reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%t: %q, want %q", supported, got, want)
		}
	}
}

// A device comes into a netns from the node, or on a device of the node: the kernel sends a message of that device. Pods that come and go
// need no search.
func TestSearch(t *testing.T) {
	parent := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1", Index: 3, NetNsID: -1, ParentIndex: 4}}
	inside := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mv0", Index: 5, NetNsID: -1, ParentIndex: 3}}
	withMAC := func(mac string) *netlink.Bridge {
		address, err := net.ParseMAC(mac)
		if err != nil {
			t.Fatal(err)
		}
		return &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", Index: 6, NetNsID: -1, HardwareAddr: address}}
	}
	for name, test := range map[string]struct {
		do   func(h *harness)
		want bool
	}{
		"a message of a device": {func(h *harness) { h.event(parent) }, true},
		"of a device that leaves": {func(h *harness) {
			h.handle(netlink.LinkUpdate{Header: unix.NlMsghdr{Type: unix.RTM_DELLINK}, Link: inside}, h.now)
		}, true},
		"of the node's uplink":         {func(h *harness) { h.routes.devices = map[int]bool{7: true}; h.event(pod()) }, true},
		"of a pod's interface":         {func(h *harness) { h.event(pod()) }, false},
		"of one whose peer is gone":    {func(h *harness) { h.event(pod(func(a *netlink.LinkAttrs) { a.NetNsID, a.ParentIndex = -1, 0 })) }, false},
		"of a bridge":                  {func(h *harness) { h.event(withMAC("02:00:00:00:00:06")) }, true},
		"of a bridge with another MAC": {func(h *harness) { h.event(withMAC("02:00:00:00:00:07")) }, false},
	} {
		h := newHarness(t)
		h.list([]netlink.Link{parent, inside, withMAC("02:00:00:00:00:06")}, h.now)
		if test.do(h); h.searchDue != test.want {
			t.Errorf("%s: a search is due: %t", name, h.searchDue)
		}
	}
}
