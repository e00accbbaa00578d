package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// result is what CNI reports about a pod with one address.
func result(address string, hostEnds ...string) *books.Result {
	return &books.Result{HostEnds: hostEnds, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
}

func pod(cookie uint64, name string, r *books.Result) pods.Change {
	return pods.Change{Cookie: cookie, Pod: detector.Pod{Namespace: "shop", Name: name}, Result: r}
}

// The role of an interface is what CNI reports; without a report it is by the first name of the pod's end.
func TestRoles(t *testing.T) {
	ip := netip.MustParseAddr("10.0.0.5")
	for _, test := range []struct {
		name         string
		peer, master string
		listed       bool
		result       *books.Result
		leads        string // what the node's route leads by
		want         string
	}{
		{"no result, eth0", "eth0", "", false, nil, "", "default"},
		{"no result, net1", "net1", "br1", false, nil, "", "net1@br1"},
		{"ptp or Calico names it", "eth0", "", false, result("10.0.0.5/24", "veth0"), "", "default"},
		{"bridge names it, with the bridge", "eth0", "cni0", false, result("10.0.0.5/24", "veth0"), "", "default"},
		{"named, whatever the pod calls it", "net7", "", true, result("10.0.0.5/24", "veth0"), "", "default"},
		{"named, on docker0", "eth0", "docker0", false, result("172.17.0.5/16", "veth0"), "", "default"},
		{"another is named", "eth0", "br1", false, result("10.0.0.5/24", "veth9"), "", "eth0@br1"},
		{"another is named, routed", "eth0", "", false, result("10.0.0.5/24", "veth9"), "", "eth0@veth0"},
		{"another is named, on docker0", "net1", "docker0", false, result("172.17.0.5/16", "veth9"), "", "docker0"},
		{"old Cilium names none", "eth0", "", false, result("10.0.0.5/32"), "", "default"},
		{"old Cilium names none, net1", "net1", "br1", false, result("10.0.0.5/32"), "", "net1@br1"},
		{"found at start, the route leads by it", "net7", "br1", true, result("10.0.0.5/32"), "veth0", "default"},
		{"found at start, the route leads elsewhere", "net7", "br1", true, result("10.0.0.5/32"), "", "net7@br1"},
		{"came later, the route says nothing", "net7", "br1", false, result("10.0.0.5/32"), "veth0", "net7@br1"},
		{"found at start, by a route to docker0", "eth0", "docker0", true, nil, "veth0", "docker0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				w := newHarness(t, "")
				change := pod(7, "a", test.result)
				change.IPs = []netip.Addr{ip}
				w.leads[test.leads] = ip
				if !late {
					w.names[7] = change
				}
				l := link("veth0", test.master, test.peer, 2, 7)
				l.Listed = test.listed
				i, _ := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
				if late {
					w.names[7] = change
					w.Name(change, time.Now())
				}
				if got := i.Network(); got != test.want {
					t.Errorf("late %t: network %q, want %q", late, got, test.want)
				}
			}
		})
	}
}

// The loop must not wait for the kernel at each event: a route is looked up once, and only where it decides something.
func TestRoutesAreLookedUpOnce(t *testing.T) {
	w := newHarness(t, "")
	for n, peer := range []string{"eth0", "net7"} {
		change := pod(uint64(7+n), "a", nil)
		change.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		w.names[change.Cookie] = change
		l := link(fmt.Sprint("veth", n), "br1", peer, 2+n, change.Cookie)
		l.Listed = true
		i, _ := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
		for range 3 {
			w.change(i, func(l *links.Interface) { l.Up = !l.Up })
			w.Name(change, time.Now())
		}
		if w.lookups != n {
			t.Errorf("%s: %d lookups in all, want %d", peer, w.lookups, n)
		}
	}
}

// Origins that an earlier agent knew are kept until all interfaces are there, and then only those that are.
func TestRestoredUntilReady(t *testing.T) {
	w := newHarness(t, "")
	gone, here := link("veth0", "", "eth0", 2, 7), link("veth1", "", "eth0", 3, 8)
	w.Origins.Restore([]Origin{{HostEnd: hostEnd(gone), Peer: "eth0", Netns: 7}, {HostEnd: hostEnd(here), Peer: "eth0", Netns: 8}})
	w.Update(links.Event{Kind: links.Added, Interface: here}, time.Now())
	if n := len(w.Origins.Saved(w.Ready())); n != 2 || w.Ready() {
		t.Errorf("%d origins before the agent is ready", n)
	}
	w.Update(links.Event{Kind: links.HostAddresses}, time.Now())
	if all := w.Origins.Saved(w.Ready()); !w.Ready() || len(w.Origins.Saved(w.Ready())) != 1 || w.Origins.Saved(w.Ready())[0].HostEnd != hostEnd(here) {
		t.Errorf("when it is ready: %+v", all)
	}
}

// What an earlier agent knew comes before the node's routes.
func TestRestoredBeforeRoutes(t *testing.T) {
	w := newHarness(t, "")
	l := link("veth0", "br1", "eth0", 2, 8)
	l.Listed = true
	w.Origins.Restore([]Origin{{HostEnd: hostEnd(l), Peer: "net1", Netns: 7}})
	change := pod(8, "a", nil)
	change.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	w.names[8], w.leads["veth0"] = change, change.IPs[0]
	if i, _ := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now()); i.Network() != "net1@br1" {
		t.Errorf("network %s", i.Network())
	}
}

// A result that comes later moves what is bound already, once, with its evidence.
func TestLateResult(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "br1", "net7", 2, 7, "10.0.0.5")
	w.binds(i, "10.0.0.5")
	named, all := w.Name(pod(7, "a", result("10.0.0.5/24", "veth0")), time.Now())
	if len(named) != 1 || len(all) != 2 || all[0].Kind != Withdrawn || all[0].Sighting.Key.Network != "net7@br1" ||
		all[1].Kind != Seen || all[1].Sighting.Key.Network != "default" || all[1].Sighting.Evidence != detector.Announced {
		t.Fatalf("named %v, %+v", named, all)
	}
	for _, again := range []*books.Result{nil, result("10.0.0.5/24", "veth0"), result("10.0.0.5/24", "veth9")} {
		if _, all := w.Name(pod(7, "a", again), time.Now()); len(all) != 0 || i.Network() != "default" {
			t.Errorf("%+v moves it again to %s: %+v", again, i.Network(), all)
		}
	}
}

// A pod renames its eth0 and moves it into another netns, also while no agent runs: network and name of the pod stay,
// with and without a result.
func TestRenamedAndMoved(t *testing.T) {
	for _, r := range []*books.Result{nil, result("10.0.0.5/24", "veth0")} {
		w := newHarness(t, "")
		w.names[7] = pod(7, "a", r)
		before := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
		if before.Renamed() || before.Moved() {
			t.Error("an untouched interface is renamed or moved")
		}
		secondary := w.add("veth1", "br1", "net1", 3, 7)
		moved := func(w *harness) {
			t.Helper()
			for _, test := range []struct {
				link *links.Interface
				want string
			}{
				{link("veth0", "", "net7", 2, 8, "10.0.0.6"), "default"},
				{link("veth1", "br1", "eth0", 3, 8, "10.0.0.6"), "net1@br1"},
			} {
				test.link.Generation += 10
				test.link.Listed = true
				i, _ := w.Update(links.Event{Kind: links.Added, Interface: test.link}, time.Now())
				if got := i.Network(); got != test.want || !i.Renamed() || !i.Moved() {
					t.Errorf("network %q, want %q; renamed %t, moved %t", got, test.want, i.Renamed(), i.Moved())
				}
				if i.Pod.Pod.Name != "a" {
					t.Errorf("%s: the pod is %v", i.Name, i.Pod.Pod)
				}
			}
		}
		saved := w.Origins.Saved(w.Ready())
		for _, i := range []*Interface{before, secondary} {
			w.Update(links.Event{Kind: links.Removed, Interface: i.Interface}, time.Now())
		}
		moved(w)
		next := newHarness(t, "")
		next.Origins.Restore(saved)
		moved(next)
		// Another device with the same index is another one.
		next = newHarness(t, "")
		next.Origins.Restore(saved)
		if i := next.add("veth7", "br1", "net7", 2, 8); i.Network() != "net7@br1" || i.Renamed() || i.Moved() {
			t.Errorf("another device is in %s, renamed %t, moved %t", i.Network(), i.Renamed(), i.Moved())
		}
	}
}

// What CNI gave to a pod stays known when the pod moves its interface, also after a restart; a stopped sandbox with the
// name of the host end changes nothing.
func TestResultOfAMovedInterface(t *testing.T) {
	w := newHarness(t, "")
	w.names[7] = pod(7, "a", result("10.0.0.5/24", "veth0"))
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	net1 := w.add("veth1", "cni0", "net1", 3, 9)
	ip := netip.MustParseAddr("10.0.0.9")
	saved := w.Origins.Saved(w.Ready())
	for _, w := range []*harness{w, newHarness(t, "")} {
		if len(w.interfaces) == 0 {
			w.names[7] = pod(7, "a", result("10.0.0.5/24", "veth0"))
			w.Origins.Restore(saved)
			if n := len(w.Origins.Saved(w.Ready())); n != 2 {
				t.Errorf("%d origins before any event, want those restored", n)
			}
			net1 = w.add("veth1", "cni0", "net1", 3, 9)
			i = w.add("veth0", "cni0", "eth0", 2, 8, "10.0.0.5")
		} else {
			w.change(i, func(l *links.Interface) { l.View.Cookie = 8 })
		}
		if i.Pod.Result == nil || net1.Key(ip, vlanOf(netns.Address{})).Network != "default" {
			t.Errorf("the pod is %+v, its neighbour on the bridge in %s", i.Pod, net1.Key(ip, vlanOf(netns.Address{})).Network)
		}
		old := pod(6, "old", result("10.0.0.5/24", "veth0"))
		old.Sandbox.Stopped = true
		if w.Name(old, time.Now()); i.Origin.Pod.Name != "a" || i.Pod.Pod.Name != "a" {
			t.Errorf("the pod is %v, at first %v", i.Pod.Pod, i.Origin.Pod)
		}
	}
}

// What the node renames is the same interface.
func TestHostEndRenamed(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7)
	w.change(i, func(l *links.Interface) { l.Name = "cali0" })
	w.change(i, func(l *links.Interface) { l.View.Peer = "net7" })
	if got := i.Network(); got != "default" || len(w.Origins.all) != 1 || w.Origins.Saved(w.Ready())[0].Name != "cali0" {
		t.Errorf("network %q, origins %+v", got, w.Origins.Saved(w.Ready()))
	}
}

// Origins of interfaces that are gone make room.
func TestOriginsAreBounded(t *testing.T) {
	w := newHarness(t, "")
	kept := w.add("veth0", "", "eth0", 2, 7)
	for n := range MaxOrigins + 10 {
		i := w.add("veth", "", "eth0", 10+n, uint64(10+n))
		w.Update(links.Event{Kind: links.Removed, Interface: i.Interface}, time.Now())
	}
	if n := len(w.Origins.all); n > MaxOrigins || w.Origins.all[kept.Origin.HostEnd] != kept.Origin {
		t.Errorf("%d origins, that of an interface: %v", n, w.Origins.all[kept.Origin.HostEnd])
	}
}

// On a bridge that has primary ports, too, a secondary port's address is in their network if it is in their subnet, by
// what CNI gave or the bridge's own address, and in the same VLAN.
func TestSubnetsOfABridge(t *testing.T) {
	w := newHarness(t, "")
	primary := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	i := w.add("veth1", "cni0", "net1", 3, 8, "10.0.0.5", "10.9.0.5")
	networks := func() (all []string) {
		for _, ip := range []string{"10.0.0.5", "10.9.0.5"} {
			all = append(all, i.Key(netip.MustParseAddr(ip), vlanOf(i.View.Addresses[0])).Network)
		}
		return all
	}
	check := func(what string, want ...string) {
		t.Helper()
		if got := networks(); !slices.Equal(got, want) {
			t.Errorf("%s: networks %v, want %v", what, got, want)
		}
	}
	check("nothing says which subnet", "net1@cni0", "net1@cni0")
	w.binds(i, "10.0.0.5", "10.9.0.5")
	if _, all := w.Name(pod(7, "a", result("10.0.0.5/24", "veth0")), time.Now()); len(all) != 2 || all[1].Sighting.Key.Network != "default" {
		t.Errorf("the result comes: %+v, want that one address moves", all)
	}
	check("the result of a primary port", "default", "net1@cni0")
	w.change(primary, func(l *links.Interface) { l.PortVLAN = 100 })
	check("it is in another VLAN", "net1@cni0", "net1@cni0")
	w.change(i, func(l *links.Interface) { l.PortVLAN = 100 })
	check("both are", "default", "net1@cni0.100")
	for _, p := range []*Interface{primary, i} {
		w.change(p, func(l *links.Interface) { l.PortVLAN = 0 })
	}
	w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{
		{IP: netip.MustParseAddr("10.9.0.1"), Subnet: netip.MustParsePrefix("10.9.0.0/16"), Device: "cni0", Index: 20},
		{IP: netip.MustParseAddr("10.9.0.1"), Subnet: netip.MustParsePrefix("0.0.0.0/0"), Device: "br1", Index: 21},
	}}, time.Now())
	check("the bridge has an address", "default", "default")
	w.Update(links.Event{Kind: links.Removed, Interface: primary.Interface}, time.Now())
	check("no primary port is left", "net1@cni0", "net1@cni0")
}

// The addresses on the host ends of secondary interfaces are not the node's in the networks of pods.
func TestHostEndsOfSecondaryInterfaces(t *testing.T) {
	w := newHarness(t, "")
	w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{
		{IP: netip.MustParseAddr("10.0.0.1"), Device: "veth0", Index: 2}, {IP: netip.MustParseAddr("10.9.0.1"), Device: "veth1", Index: 3},
	}}, time.Now())
	w.add("veth0", "", "eth0", 2, 7)
	w.add("veth1", "", "net1", 3, 7)
	if got := w.Own.IPs(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) {
		t.Errorf("the node's addresses are %v", got)
	}
	w.Name(pod(7, "a", result("10.9.0.5/24", "veth1")), time.Now())
	if got := w.Own.IPs(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.9.0.1")}) {
		t.Errorf("after the result the node's addresses are %v", got)
	}
}
