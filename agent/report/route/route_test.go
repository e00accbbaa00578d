package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestMain(m *testing.M) { ownnetns.Main(m) }

// veth makes a pair whose other end is in a netns of its own.
func veth(t *testing.T, name string, master int) netlink.Link {
	t.Helper()
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	v := netlink.NewVeth(attrs)
	v.PeerName, v.PeerNamespace = "eth0", netlink.NsPid(pod.Pid)
	add(t, v)
	if master != 0 {
		must(t, netlink.LinkSetMasterByIndex(v, master))
	}
	// A port without a carrier takes no entries.
	ns, err := netns.GetFromPid(pod.Pid)
	must(t, err)
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	must(t, err)
	defer inside.Close()
	peer, err := inside.LinkByName("eth0")
	must(t, err)
	must(t, inside.LinkSetUp(peer))
	return v
}

// add makes a device, with an address if one is given, and sets it up.
func add(t *testing.T, link netlink.Link, addrs ...string) netlink.Link {
	t.Helper()
	must(t, netlink.LinkAdd(link))
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	for _, text := range addrs {
		addr, err := netlink.ParseAddr(text)
		must(t, err)
		addr.Flags = unix.IFA_F_NODAD
		must(t, netlink.AddrAdd(link, addr))
	}
	must(t, netlink.LinkSetUp(link))
	return link
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addRoute(t *testing.T, prefix, via string, device netlink.Link, kind int) {
	t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	must(t, err)
	r := &netlink.Route{Dst: dst, Gw: net.ParseIP(via), Type: kind}
	if device != nil {
		r.LinkIndex = device.Attrs().Index
	}
	must(t, netlink.RouteAdd(r))
	t.Cleanup(func() { _ = netlink.RouteDel(r) })
}

var macs = [...]net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

// entry adds a neighbour entry; without an IP to the bridge's table.
func entry(t *testing.T, device netlink.Link, ip string, mac net.HardwareAddr, state int) {
	t.Helper()
	n := &netlink.Neigh{LinkIndex: device.Attrs().Index, IP: net.ParseIP(ip), HardwareAddr: mac, State: state}
	if n.IP == nil {
		n.Family, n.Flags = unix.AF_BRIDGE, netlink.NTF_MASTER
	}
	// A port that does not forward yet takes no entries (EPERM from fdb_add_entry,
	// net/bridge/br_fdb.c): the bridge notices the carrier a moment later.
	err := netlink.NeighSet(n)
	for deadline := time.Now().Add(10 * time.Second); errors.Is(err, unix.EPERM) && time.Now().Before(deadline); err = netlink.NeighSet(n) {
		time.Sleep(time.Millisecond)
	}
	must(t, err)
}

// outline is a route in one line.
func outline(r Route) string {
	kind := map[Kind]string{Out: "out", Self: "self", Nowhere: "nowhere"}[r.Kind]
	text := kind + " " + r.Device.Name
	if r.Device.Leaves {
		text += " leaves"
	}
	if r.Gateway.IsValid() {
		text += fmt.Sprint(" via ", r.Gateway)
	}
	if r.MAC != nil {
		text += fmt.Sprint(" mac ", r.MAC)
	}
	if r.Bridge != 0 {
		text += " port " + r.Port.Name
	}
	if r.Single {
		text += " alone"
	}
	if r.Far.IsValid() {
		text += fmt.Sprint(" to ", r.Far)
	}
	return text
}

func checkRoute(t *testing.T, ip, want string) {
	t.Helper()
	if got, err := outlines(ip); err != nil || !slices.Equal(got, []string{want}) {
		t.Errorf("the routes to %s are %q, %v; want %q", ip, got, err, want)
	}
}

func outlines(ip string) (list []string, err error) {
	routes, err := To(netip.MustParseAddr(ip))
	for _, r := range routes {
		list = append(list, outline(r))
	}
	return list, err
}

// The ptp plugin gives each pod a route: of two pods with one address one has it.
func TestRouted(t *testing.T) {
	one, two := veth(t, "vetha", 0), veth(t, "vethb", 0)
	addRoute(t, "10.1.0.2/32", "", one, unix.RTN_UNICAST)
	addRoute(t, "fd01::2/128", "", two, unix.RTN_UNICAST)
	checkRoute(t, "10.1.0.2", "out vetha alone")
	checkRoute(t, "fd01::2", "out vethb alone")
	checkRoute(t, "10.1.0.3", "nowhere ")
	checkRoute(t, "fd01::3", "nowhere ")
	for _, kind := range []int{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT} {
		t.Run(fmt.Sprint("type ", kind), func(t *testing.T) {
			addRoute(t, "10.1.0.4/32", "", nil, kind)
			addRoute(t, "fd01::4/128", "", nil, kind)
			checkRoute(t, "10.1.0.4", "nowhere ")
			checkRoute(t, "fd01::4", "nowhere ")
		})
	}
}

func TestBridged(t *testing.T) {
	testneeds.Root(t)
	bridge := add(t, &netlink.Bridge{LinkAttrs: named("cni0")}, "10.2.0.1/24", "fd02::1/64")
	one, two := veth(t, "vetha", bridge.Attrs().Index), veth(t, "vethb", bridge.Attrs().Index)
	checkRoute(t, "10.2.0.2", "out cni0 port ")
	checkRoute(t, "fd02::2", "out cni0 port ")
	// The lookup must not resolve neighbours.
	list, err := netlink.NeighList(bridge.Attrs().Index, netlink.FAMILY_ALL)
	must(t, err)
	for _, n := range list {
		if n.IP.IsGlobalUnicast() {
			t.Errorf("the lookup left an entry: %+v", n)
		}
	}
	for _, ip := range []string{"10.2.0.2", "fd02::2"} {
		entry(t, bridge, ip, macs[0], netlink.NUD_STALE)
		checkRoute(t, ip, "out cni0 mac 02:00:00:00:00:01 port ")
	}
	entry(t, two, "", macs[0], netlink.NUD_REACHABLE)
	checkRoute(t, "10.2.0.2", "out cni0 mac 02:00:00:00:00:01 port vethb")
	checkRoute(t, "fd02::2", "out cni0 mac 02:00:00:00:00:01 port vethb")
	entry(t, one, "", macs[1], netlink.NUD_REACHABLE)
	checkRoute(t, "10.2.0.2", "out cni0 mac 02:00:00:00:00:01 port vethb")
	for _, state := range []int{netlink.NUD_FAILED, netlink.NUD_INCOMPLETE} {
		entry(t, bridge, "10.2.0.9", nil, state)
		checkRoute(t, "10.2.0.9", "out cni0 port ")
	}
	ports, err := Ports()
	if want := []int{one.Attrs().Index, two.Attrs().Index}; err != nil || !slices.Equal(ports[bridge.Attrs().Index], want) {
		t.Errorf("the ports of bridges are %v, %v; want %v", ports, err, want)
	}
	checkRoute(t, "10.2.0.1", "self cni0 alone")
	// The bridge notices the carrier of its ports a moment later, and has its route then.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if r, err := To(netip.MustParseAddr("fd02::1")); err == nil && r[0].Kind == Self {
			break
		}
	}
	checkRoute(t, "fd02::1", "self cni0 alone")
}

// Not every kernel has bridges with VLAN filtering, so this test needs none.
func TestBridgeOf(t *testing.T) {
	yes, no, pvid := true, false, uint16(7)
	at := func(index, below int) netlink.LinkAttrs {
		attrs := named(fmt.Sprint("dev", index))
		attrs.Index, attrs.ParentIndex = index, below
		return attrs
	}
	filtering := &netlink.Bridge{LinkAttrs: at(1, 0), VlanFiltering: &yes, VlanDefaultPVID: &pvid}
	plain := &netlink.Bridge{LinkAttrs: at(2, 0), VlanFiltering: &no, VlanDefaultPVID: &pvid}
	uplink := &netlink.Device{LinkAttrs: at(3, 0)}
	elsewhere := &netlink.Vlan{LinkAttrs: at(7, 1), VlanId: 100}
	elsewhere.NetNsID = 5
	defer func() { linkByIndex = netlink.LinkByIndex }()
	linkByIndex = func(index int) (netlink.Link, error) {
		return map[int]netlink.Link{1: filtering, 2: plain, 3: uplink}[index], nil
	}
	for _, test := range []struct {
		name   string
		link   netlink.Link
		bridge int
		vid    uint16
		leaves bool
	}{
		{"filtering", filtering, 1, 7, false},
		{"plain", plain, 2, 0, false},
		{"VLAN of a filtering one", &netlink.Vlan{LinkAttrs: at(4, 1), VlanId: 100}, 1, 100, false},
		{"VLAN of a plain one", &netlink.Vlan{LinkAttrs: at(5, 2), VlanId: 100}, 2, 0, false},
		{"VLAN of an uplink", &netlink.Vlan{LinkAttrs: at(6, 3), VlanId: 100}, 0, 0, true},
		{"VLAN of another netns's device", elsewhere, 0, 0, false},
		{"uplink", uplink, 0, 0, true},
		{"Open vSwitch", &netlink.GenericLink{LinkAttrs: at(8, 0), LinkType: "openvswitch"}, 0, 0, false},
		{"dummy", &netlink.Dummy{LinkAttrs: at(9, 0)}, 0, 0, false},
	} {
		bridge, vid := bridgeOf(test.link)
		if bridge != test.bridge || vid != test.vid || device(test.link).Leaves != test.leaves {
			t.Errorf("%s: bridge %d, VLAN %d, %+v", test.name, bridge, vid, device(test.link))
		}
	}
}

func TestOffTheNode(t *testing.T) {
	testneeds.Root(t)
	tunnel := add(t, &netlink.Vxlan{LinkAttrs: named("flannel.1"), VxlanId: 1, Port: 8472}, "10.5.1.0/32", "fd05::1/128")
	uplink := veth(t, "eth9", 0)
	for device, texts := range map[netlink.Link][]string{uplink: {"192.0.2.1/24", "2001:db8::1/64"}} {
		for _, text := range texts {
			addr, err := netlink.ParseAddr(text)
			must(t, err)
			addr.Flags = unix.IFA_F_NODAD
			must(t, netlink.AddrAdd(device, addr))
		}
	}
	r := &netlink.Route{
		LinkIndex: tunnel.Attrs().Index, Gw: net.ParseIP("10.5.2.0"), Flags: unix.RTNH_F_ONLINK,
		Dst: &net.IPNet{IP: net.ParseIP("10.5.2.0").To4(), Mask: net.CIDRMask(24, 32)},
	}
	must(t, netlink.RouteAdd(r))
	checkRoute(t, "10.5.2.7", "out flannel.1 leaves via 10.5.2.0")
	checkRoute(t, "10.5.2.0", "out flannel.1 leaves")
	// The other end of the tunnel is known by the neighbour entry of the gateway, and the forwarding entry of its MAC.
	entry(t, tunnel, "10.5.2.0", macs[0], netlink.NUD_PERMANENT)
	checkRoute(t, "10.5.2.7", "out flannel.1 leaves via 10.5.2.0")
	must(t, netlink.NeighAppend(&netlink.Neigh{
		LinkIndex: tunnel.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: net.ParseIP("192.0.2.5"), HardwareAddr: macs[0],
	}))
	checkRoute(t, "10.5.2.7", "out flannel.1 leaves via 10.5.2.0 to 192.0.2.5")
	checkRoute(t, "10.5.2.0", "out flannel.1 leaves mac 02:00:00:00:00:01 to 192.0.2.5")
	addRoute(t, "0.0.0.0/0", "192.0.2.254", nil, unix.RTN_UNICAST)
	addRoute(t, "::/0", "2001:db8::254", nil, unix.RTN_UNICAST)
	checkRoute(t, "10.6.0.1", "out eth9 via 192.0.2.254")
	checkRoute(t, "fd06::1", "out eth9 via 2001:db8::254")
	checkRoute(t, "192.0.2.9", "out eth9")
	entry(t, uplink, "192.0.2.9", macs[1], netlink.NUD_REACHABLE)
	checkRoute(t, "192.0.2.9", "out eth9 mac 02:00:00:00:00:02")
	// An IPv4 route by an IPv6 neighbour, as in BGP unnumbered.
	via := &netlink.Route{
		LinkIndex: uplink.Attrs().Index, Dst: &net.IPNet{IP: net.IP{10, 7, 0, 0}, Mask: net.CIDRMask(24, 32)},
		Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("2001:db8::9")},
	}
	must(t, netlink.RouteAdd(via))
	checkRoute(t, "10.7.0.1", "out eth9 via 2001:db8::9")
	checkRoute(t, "192.0.2.1", "self eth9 alone")
	must(t, netlink.LinkSetDown(uplink))
	checkRoute(t, "10.6.0.1", "nowhere ")
}

// Of a multipath route the legs are returned that work. Of IPv6 the kernel lists the one first that it would take.
func TestLegs(t *testing.T) {
	testneeds.Root(t)
	check := func(ip string, want ...string) {
		t.Helper()
		if got, err := outlines(ip); err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("the legs to %s are %q, %v; want %q", ip, got, err, want)
		}
	}
	one, two := veth(t, "eth7", 0), veth(t, "eth8", 0)
	addRoute(t, "192.0.2.0/25", "", one, unix.RTN_UNICAST)
	addRoute(t, "192.0.2.128/25", "", two, unix.RTN_UNICAST)
	addRoute(t, "2001:db8::/65", "", one, unix.RTN_UNICAST)
	addRoute(t, "2001:db8:0:0:8000::/65", "", two, unix.RTN_UNICAST)
	for prefix, hops := range map[string][2]string{"10.8.0.0/24": {"192.0.2.1", "192.0.2.129"}, "fd08::/64": {"2001:db8::1", "2001:db8:0:0:8000::1"}} {
		_, dst, err := net.ParseCIDR(prefix)
		must(t, err)
		must(t, netlink.RouteAdd(&netlink.Route{Dst: dst, MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: one.Attrs().Index, Gw: net.ParseIP(hops[0]), Flags: unix.RTNH_F_ONLINK}, {LinkIndex: two.Attrs().Index, Gw: net.ParseIP(hops[1]), Flags: unix.RTNH_F_ONLINK},
		}}))
	}
	check("10.8.0.1", "out eth7 via 192.0.2.1", "out eth8 via 192.0.2.129")
	check("fd08::1", "out eth7 via 2001:db8::1", "out eth8 via 2001:db8::8000:0:0:1")
	check("192.0.2.9", "out eth7")
	check("10.9.0.1", "nowhere ")
	must(t, netlink.LinkSetDown(two))
	check("10.8.0.1", "out eth7 via 192.0.2.1")
}

// A route by a nexthop object has no device in the kernel's table, where net.ipv4.nexthop_compat_mode is 0.
func TestNexthopObject(t *testing.T) {
	testneeds.Root(t)
	uplink := veth(t, "eth7", 0)
	addRoute(t, "192.0.2.0/24", "", uplink, unix.RTN_UNICAST)
	for _, command := range []string{"nexthop add id 7 via 192.0.2.1 dev eth7 onlink", "route add 10.8.0.0/24 nhid 7"} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	for _, mode := range []string{"1", "0"} {
		must(t, os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte(mode), 0))
		checkRoute(t, "10.8.0.1", "out eth7 via 192.0.2.1")
	}
}

func TestByDestination(t *testing.T) {
	testneeds.Root(t)
	check := func(what string, want bool) {
		t.Helper()
		if got, err := ByDestination(); err != nil || got != want {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
	check("the rules of every node", true)
	rule := func(change func(*netlink.Rule)) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table = unix.AF_INET, 100, 100
		change(r)
		return r
	}
	network := &net.IPNet{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}
	for what, change := range map[string]func(*netlink.Rule){
		"to":          func(r *netlink.Rule) { r.Dst = network },
		"all":         func(*netlink.Rule) {},
		"from":        func(r *netlink.Rule) { r.Src = network },
		"iif":         func(r *netlink.Rule) { r.IifName = "lo" },
		"oif":         func(r *netlink.Rule) { r.OifName = "lo" },
		"fwmark":      func(r *netlink.Rule) { r.Mark, r.Mask, r.Invert = 0x100000, new(uint32(0x100000)), true },
		"tos":         func(r *netlink.Rule) { r.Tos = 4 },
		"dport":       func(r *netlink.Rule) { r.Dport = netlink.NewRulePortRange(80, 80) },
		"not a table": func(r *netlink.Rule) { r.Type, r.Table = unix.FR_ACT_PROHIBIT, unix.RT_TABLE_UNSPEC },
		"IPv6":        func(r *netlink.Rule) { r.Family, r.Mark, r.Mask = unix.AF_INET6, 1, new(uint32(1)) },
	} {
		r := rule(change)
		must(t, netlink.RuleAdd(r))
		check(what, what == "to" || what == "all")
		must(t, netlink.RuleDel(r))
	}
	check("the rules of every node again", true)
}

func BenchmarkTo(b *testing.B) {
	for b.Loop() {
		if _, err := To(netip.MustParseAddr("127.0.0.1")); err != nil {
			b.Fatal(err)
		}
	}
}
