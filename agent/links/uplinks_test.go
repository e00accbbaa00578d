package links_test

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/internal/testneeds"
)

// If a node is a container itself, its uplink is a veth into another netns, and receives packets of
// the whole cluster.
func TestUplinkIsNoPodInterface(t *testing.T) {
	outside, pod := ownnetns.NewPod(t), ownnetns.NewPod(t)
	uplink := addVeth(t, outside, "uplink", "10.9.9.254/24")
	address, err := netlink.ParseAddr("10.9.9.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(uplink, address))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.IPv4(10, 9, 9, 254)}))
	_, wait := watch(t, links.Options{})
	addVeth(t, pod, "pod1", "10.1.1.1/24")
	wait("pod1 and only that", func(e links.Event) bool {
		if e.Kind == links.Added && e.Interface.Name == "uplink" {
			t.Error("the uplink is observed as a pod interface")
		}
		return named(links.Added, "pod1")(e)
	})
}

// A node may have several uplinks. No path leads to the namespaces behind them.
func TestSecondUplinkIsNoPodInterface(t *testing.T) {
	addHidden(t, hiddenNetns(t), "eth7", 0, 0, "172.19.0.2/16")
	addHidden(t, hiddenNetns(t), "routed", 0, 0, "10.9.9.1/32") // the gateway's address on the host end of a hidden pod
	veth := addHidden(t, hiddenNetns(t), "eth8", 0, 0)
	// Before an uplink has its address, nothing distinguishes it from a pod's interface.
	_, wait := watch(t, links.Options{})
	notUplink := func(e links.Event) {
		if named(links.Added, "eth7")(e) {
			t.Error("the uplink is observed as a pod interface")
		}
	}
	for range 2 {
		wait("the hidden pod and eth8, not eth7", func(e links.Event) bool { notUplink(e); return e.Kind == links.Added })
	}
	// An uplink may get its address late.
	addTo(t, veth, "172.20.0.2/16")
	wait("eth8 removed", func(e links.Event) bool { notUplink(e); return named(links.Removed, "eth8")(e) })
}

// An uplink may be a port of a bridge that has the address, the route and the MAC of the uplink, as
// OVN-Kubernetes makes it.
func TestUplinkBehindABridgeIsNoPodInterface(t *testing.T) {
	testneeds.Root(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "breth9"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
	for _, name := range []string{"eth9", "hidden9"} {
		addHidden(t, hiddenNetns(t), name, 0, bridge.Index)
	}
	uplink, err := netlink.LinkByName("eth9")
	must(t, err)
	must(t, netlink.LinkSetHardwareAddr(bridge, uplink.Attrs().HardwareAddr))
	address, err := netlink.ParseAddr("10.9.8.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(bridge, address))
	must(t, netlink.LinkSetUp(bridge))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Index, Gw: net.IPv4(10, 9, 8, 254), Priority: 7}))
	_, wait := watch(t, links.Options{Resync: 200 * time.Millisecond})
	notUplink := func(e links.Event) {
		if e.Kind == links.Added && e.Interface.Name == "eth9" {
			t.Error("the uplink is observed as a pod interface")
		}
	}
	wait("the other port", func(e links.Event) bool { notUplink(e); return named(links.Added, "hidden9")(e) })
	for range 3 { // every resync sends these
		wait("the node's addresses", func(e links.Event) bool { notUplink(e); return e.Kind == links.HostAddresses })
	}
}

// An uplink without an address is known by where it leads: into the netns of the default route's device, or of one with a subnet. Other
// namespaces that nobody finds may be those of pods.
func TestUplinkWithoutAddress(t *testing.T) {
	testneeds.Root(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br-lan"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
	for name, known := range map[string]func(t *testing.T, outside *os.File){
		"by the default route": func(t *testing.T, outside *os.File) {
			eth0 := addHidden(t, outside, "eth0", 0, 0)
			must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Index, Gw: net.IPv4(10, 5, 4, 254), Flags: int(netlink.FLAG_ONLINK), Priority: 11}))
		},
		"by the default route of IPv6": func(t *testing.T, outside *os.File) {
			eth0 := addHidden(t, outside, "eth0", 0, 0, "fd00:54::1/64")
			must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Index, Gw: net.ParseIP("fd00:54::fe"), Priority: 11}))
		},
		"by a subnet":         func(t *testing.T, outside *os.File) { addHidden(t, outside, "eth0", 0, 0, "10.5.4.1/24") },
		"by a subnet of IPv6": func(t *testing.T, outside *os.File) { addHidden(t, outside, "eth0", 0, 0, "fd00:54::1/64") },
	} {
		t.Run(name, func(t *testing.T) {
			outside := hiddenNetns(t)
			known(t, outside)
			addHidden(t, outside, "eth1", 0, bridge.Index)
			addHidden(t, hiddenNetns(t), "hidden1", 0, bridge.Index)
			_, wait := watch(t, links.Options{Resync: 200 * time.Millisecond})
			wait("the hidden pod and only that", func(e links.Event) bool {
				if e.Kind == links.Added && e.Interface.Name != "hidden1" {
					t.Errorf("%s is observed as a pod interface", e.Interface.Name)
				}
				return named(links.Added, "hidden1")(e)
			})
			wait("the uplink", listedAs("eth1"))
			addHidden(t, outside, "eth2", 0, bridge.Index)
			wait("another one, later", listedAs("eth2"))
		})
	}
}

// hiddenNetns makes a netns to which no path leads.
func hiddenNetns(t *testing.T) *os.File {
	t.Helper()
	pod := ownnetns.NewPod(t)
	held := pod.Open(t)
	pod.Delete()
	return held
}

// enter starts a process in a netns.
func enter(t *testing.T, held *os.File) {
	t.Helper()
	process := exec.Command("sleep", "3600")
	must(t, netns.Do(held, process.Start))
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
}

// addHidden makes a veth into a hidden netns, up on this side. index 0 lets the kernel choose.
func addHidden(t *testing.T, held *os.File, name string, index, master int, addresses ...string) *netlink.Veth {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index, attrs.MasterIndex = name, index, master
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "p" + name, PeerNamespace: netlink.NsFd(held.Fd())}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	must(t, netlink.LinkSetUp(veth))
	for _, address := range addresses {
		addTo(t, veth, address)
	}
	return veth
}

func addTo(t *testing.T, link netlink.Link, address string) {
	t.Helper()
	parsed, err := netlink.ParseAddr(address)
	must(t, err)
	must(t, netlink.AddrAdd(link, parsed))
}

// listed reports whether an event lists the interface as an uplink.
func listed(e links.Event, name string) bool {
	return slices.ContainsFunc(e.Unobserved, func(i links.Interface) bool {
		return i.Name == name && i.State == links.Uplink && i.Reason != ""
	})
}

func listedAs(name string) func(links.Event) bool {
	return func(e links.Event) bool { return listed(e, name) }
}

// A pod's host end may have an address with a subnet, as nspawn makes it. It does not become an uplink
// when its netns is unseen for a while.
func TestPodThatWasSeenIsNoUplink(t *testing.T) {
	_, wait := watch(t, links.Options{Resync: 200 * time.Millisecond})
	pod := ownnetns.NewPod(t)
	held := pod.Open(t)
	veth := addVeth(t, pod, "ve-box", "10.5.5.2/28")
	addTo(t, veth, "10.5.5.1/28")
	notRemoved := func(ok func(links.Interface) bool) func(links.Event) bool {
		return func(e links.Event) bool {
			if named(links.Removed, "ve-box")(e) {
				t.Fatal("the pod's interface is not observed any more: ", e.Reason)
			}
			return e.Interface != nil && ok(*e.Interface)
		}
	}
	wait("seen", notRemoved(func(i links.Interface) bool { return i.Seen }))
	pod.Delete()
	wait("not seen", notRemoved(func(i links.Interface) bool { return !i.Seen }))
	enter(t, held)
	wait("seen again", notRemoved(func(i links.Interface) bool { return i.Seen }))
}

// An uplink becomes a pod's interface when a process is in its netns.
func TestUplinkThatBecomesAPod(t *testing.T) {
	_, wait := watch(t, links.Options{Resync: 200 * time.Millisecond})
	held := hiddenNetns(t)
	addHidden(t, held, "late", 0, 0, "10.5.6.1/28")
	wait("taken for an uplink", listedAs("late"))
	enter(t, held)
	wait("followed as a pod's", func(e links.Event) bool { return named(links.Added, "late")(e) && e.Interface.Seen })
	wait("listed no more", func(e links.Event) bool { return e.Kind == links.Unobserved && !listed(e, "late") })
}

// An uplink becomes a pod's interface when its address is removed.
func TestUplinkThatLosesItsAddress(t *testing.T) {
	_, wait := watch(t, links.Options{})
	veth := addHidden(t, hiddenNetns(t), "was-up", 0, 0, "10.5.7.1/28")
	wait("taken for an uplink", listedAs("was-up"))
	address, err := netlink.ParseAddr("10.5.7.1/28")
	must(t, err)
	must(t, netlink.AddrDel(veth, address))
	wait("followed, unseen", func(e links.Event) bool { return named(links.Added, "was-up")(e) && !e.Interface.Seen })
}

// A deleted uplink loses its classification, also if another interface gets its index.
func TestUplinkThatIsDeleted(t *testing.T) {
	_, wait := watch(t, links.Options{})
	held := hiddenNetns(t)
	veth := addHidden(t, held, "up1", 4343, 0, "10.5.8.1/28")
	wait("taken for an uplink", listedAs("up1"))
	must(t, netlink.LinkDel(veth))
	wait("listed no more", func(e links.Event) bool { return e.Kind == links.Unobserved && !listed(e, "up1") })
	addHidden(t, held, "next", 4343, 0)
	wait("the next one followed", named(links.Added, "next"))
}

// The kernel gives a bridge the lowest MAC of its ports: a port with the same MAC as its bridge is no uplink.
func TestPortWithItsBridgesMACIsNoUplink(t *testing.T) {
	testneeds.Root(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br-pods"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
	port := addHidden(t, hiddenNetns(t), "lowest", 0, bridge.Index)
	addTo(t, bridge, "10.5.9.1/24")
	must(t, netlink.LinkSetUp(bridge))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Index, Gw: net.IPv4(10, 5, 9, 254), Priority: 9}))
	same, err := netlink.LinkByIndex(bridge.Index)
	must(t, err)
	lowest, err := netlink.LinkByIndex(port.Index)
	must(t, err)
	if same.Attrs().HardwareAddr.String() != lowest.Attrs().HardwareAddr.String() {
		t.Fatalf("the bridge has %v, not its port's %v", same.Attrs().HardwareAddr, lowest.Attrs().HardwareAddr)
	}
	_, wait := watch(t, links.Options{})
	wait("the port followed", func(e links.Event) bool {
		if listed(e, "lowest") {
			t.Fatal("the port is classified as an uplink")
		}
		return named(links.Added, "lowest")(e)
	})
}
