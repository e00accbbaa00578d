package observe

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

// TestNotReadyBeforeHostAddresses: a reload does not make the table ready.
func TestNotReadyBeforeHostAddresses(t *testing.T) {
	w := newHarness(t, "")
	w.Configure(parsed(t, ""), time.Now())
	if w.Ready() {
		t.Error("ready before the host addresses were listed")
	}
	w.Update(links.Event{Kind: links.HostAddresses}, time.Now())
	if !w.Ready() {
		t.Error("not ready after the host addresses were listed")
	}
}

// TestNotReadyWhileAttaching: interfaces that were there at the start have to be observed, or it has to be clear
// why not. One that comes later does not end readiness.
func TestNotReadyWhileAttaching(t *testing.T) {
	w := newHarness(t, "")
	pending := func(l *links.Interface) { l.Listed, l.State = true, links.Pending }
	a, b := w.add("veth0", "", "eth0", 2, 7), w.add("veth1", "", "eth0", 3, 8)
	w.change(a, pending)
	w.change(b, pending)
	w.Update(links.Event{Kind: links.HostAddresses}, time.Now())
	w.change(a, func(l *links.Interface) { l.State = links.Attached })
	if w.Ready() {
		t.Error("ready while an interface is pending")
	}
	w.change(b, func(l *links.Interface) { l.State = links.Waiting })
	if w.Ready() {
		t.Error("ready while an interface waits for its qdisc")
	}
	w.change(b, func(l *links.Interface) { l.State = links.Failed })
	if !w.Ready() {
		t.Error("not ready, but no interface is pending")
	}
	w.change(b, pending)
	if !w.Ready() {
		t.Error("not ready any more")
	}
}

// TestHostAddresses: an address has a binding in each of its networks, and in no other.
func TestHostAddresses(t *testing.T) {
	w := newHarness(t, "networks: [{name: a, match: {interfaces: [br-a]}}, {name: b, match: {bridges: [br-b, vrf-b]}}]")
	ip := netip.MustParseAddr("10.0.0.1")
	known := make(map[string]bool)
	follow := func(all []Observation, want ...string) {
		t.Helper()
		for _, o := range all {
			if o.Sighting.Holder.ID != w.Host || o.Kind == Seen && (o.Sighting.Evidence != detector.Host || !o.Sighting.Answer) {
				t.Errorf("observation %+v of the node itself", o)
			}
			known[o.Sighting.Key.Network] = o.Kind == Seen
		}
		for _, network := range []string{"default", "a", "b"} {
			if got := known[network]; got != slices.Contains(want, network) {
				t.Errorf("known in %s: %t", network, got)
			}
		}
	}
	list := func(addresses ...links.HostAddress) []Observation {
		_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: addresses}, time.Now())
		return all
	}
	all := list(links.HostAddress{IP: ip, Device: "br-a", Index: 5}, links.HostAddress{IP: ip, Device: "br-b", Index: 6}, links.HostAddress{IP: ip, Device: "veth1", Index: 7})
	if !all[0].Sighting.FoundAtStart {
		t.Error("the addresses of the first list count as new")
	}
	follow(all, "default", "a", "b")
	all = list(links.HostAddress{IP: ip, Device: "br-b", Index: 6})
	if last := all[len(all)-1]; last.Kind != Seen || last.Sighting.FoundAtStart {
		t.Errorf("a later list: %+v", last)
	}
	follow(all, "b")
	follow(list(links.HostAddress{IP: ip, Device: "eth9", Index: 8, Master: "vrf-b"}), "b")
	follow(w.Configure(parsed(t, ""), time.Now()), "default")
	if got := w.Own.IPs(); !slices.Equal(got, []netip.Addr{ip}) {
		t.Errorf("the node's addresses are %v", got)
	}
}

// TestManyHostAddresses: the address at which the node receives gossip is never among those that are omitted, then the order of the list
// decides.
func TestManyHostAddresses(t *testing.T) {
	w := newHarness(t, "networks: [{name: a, match: {interfaces: [br-a]}}]")
	w.GossipAddress = netip.MustParseAddr("192.168.7.1")
	list := hostList(maxHostKeys + 9)
	list = append(list, links.HostAddress{IP: w.GossipAddress, Subnet: netip.MustParsePrefix("192.168.7.0/24"), Device: "eth0"})
	kept := make(map[netip.Addr]bool)
	update := func(list []links.HostAddress, omitted int) {
		t.Helper()
		_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now())
		for _, o := range all {
			if kept[o.Sighting.Key.IP] = o.Kind == Seen; o.Kind == Withdrawn {
				delete(kept, o.Sighting.Key.IP)
			}
		}
		if n := w.Own.Omitted(); n != omitted || len(kept) != len(w.Own.IPs()) || len(kept)+n != len(list) || !kept[w.GossipAddress] || !kept[list[0].IP] {
			t.Errorf("%d addresses of the node are kept and %d omitted, want %d of %d to be omitted; gossip's is kept: %t", len(kept), n, omitted, len(list), kept[w.GossipAddress])
		}
	}
	update(list, 10)
	slices.Reverse(list)
	update(list, 10)
	update(list[:50], 0)
	list = append(hostList(maxHostKeys-1), list[0])
	update(list, 0)
	// An address in two networks counts as omitted if there is no room for one of them.
	double := list[0]
	double.Device, double.Index = "br-a", 7
	w.Update(links.Event{Kind: links.HostAddresses, Host: append(list, double)}, time.Now())
	if n := w.Own.Omitted(); n != 1 || len(w.Own.IPs()) != maxHostKeys {
		t.Errorf("%d are omitted, %d are kept, want 1 and %d", n, len(w.Own.IPs()), maxHostKeys)
	}
}

// TestHostAddressesOfNewPods: a pod that starts has none of the node's own addresses observed again, but those on its host end if it turns
// out to be a secondary interface, or a primary one.
func TestHostAddressesOfNewPods(t *testing.T) {
	w := newHarness(t, "")
	gateway := netip.MustParseAddr("10.9.0.1")
	list := append(hostList(maxHostKeys-1), links.HostAddress{IP: gateway, Device: "veth9", Index: 9})
	w.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now())
	want := func(what string, all []Observation, want ...string) {
		t.Helper()
		if got := networksOf(all); !slices.Equal(got, want) {
			t.Errorf("%s: %d observations, want %q", what, len(got), want)
		}
	}
	for _, index := range []int{4, 9} {
		cookie, name := uint64(index), fmt.Sprint("veth", index)
		temporary := link(name, "", "veth0578244", index, cookie)
		temporary.View.PeerDown = true
		i, all := w.Update(links.Event{Kind: links.Added, Interface: temporary}, time.Now())
		eth0 := func(l *links.Interface) { l.View.Peer, l.View.PeerDown = "eth0", false }
		named, other := pod(cookie, "a", nil), pod(cookie, "a", result("10.0.0.5/24", "veth7"))
		if index == 4 {
			want("Docker adds its device", all)
			want("Docker renames it", w.change(i, eth0))
			_, all = w.Name(named, time.Now())
			want("the runtime names the pod", all)
			_, all = w.Name(pod(cookie, "a", result("10.0.0.5/24", name)), time.Now())
			want("a result names what was primary by its name", all)
			continue
		}
		want("a device with an address", all, "no more default")
		want("it is primary", w.change(i, eth0), "default")
		_, all = w.Name(other, time.Now())
		want("a result names another", all, "no more default")
	}
}

// TestHostAddressesOfASmallTable: the node's own addresses leave room for those of pods in a table of any size, also after a reload.
func TestHostAddressesOfASmallTable(t *testing.T) {
	w := newHarness(t, "")
	_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: hostList(maxHostKeys)}, time.Now())
	for _, limits := range []struct{ bindings, want int }{{100, 25}, {2, 0}, {4 * maxHostKeys, maxHostKeys}, {1 << 20, maxHostKeys}} {
		all = append(all, w.Configure(parsed(t, fmt.Sprintf("limits: {bindings: %d}", limits.bindings)), time.Now())...)
		known := make(map[netip.Addr]bool)
		for _, o := range all {
			if known[o.Sighting.Key.IP] = o.Kind == Seen; o.Kind == Withdrawn {
				delete(known, o.Sighting.Key.IP)
			}
		}
		if n := len(w.Own.IPs()); n != limits.want || len(known) != n || w.Own.Omitted() != maxHostKeys-n {
			t.Errorf("a table of %d: %d are compared, %d are known, %d are omitted, want %d", limits.bindings, n, len(known), w.Own.Omitted(), limits.want)
		}
	}
}

// TestFindHost: an address is found in its network, at any place of the list.
func TestFindHost(t *testing.T) {
	w, many := newHarness(t, ""), hostList(1000)
	o, ok := w.Own.Find(many, detector.Key{Network: "default", IP: many[999].IP}, time.Now())
	if !ok || o.Sighting.Key.IP != many[999].IP || o.Sighting.Holder.InterfaceName != "eth1" {
		t.Errorf("found %+v, %t", o, ok)
	}
	if o, ok := w.Own.Find(many, detector.Key{Network: "a", IP: many[999].IP}, time.Now()); ok {
		t.Errorf("found in another network: %+v", o)
	}
}

// BenchmarkHostAddresses lists the node's own addresses again. Nothing has changed, as at most times.
func BenchmarkHostAddresses(b *testing.B) {
	for _, n := range []int{64, 1000, 4096} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			w, list := newHarness(b, ""), hostList(n)
			for b.Loop() {
				if _, all := w.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now()); len(all) != n {
					b.Fatalf("%d observations, want %d", len(all), n)
				}
			}
		})
	}
}

// hostList is a list of n addresses of the node on one device.
func hostList(n int) (list []links.HostAddress) {
	for i := range n {
		list = append(list, links.HostAddress{IP: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Device: "eth1", Index: 3})
	}
	return list
}

// TestPlaces: where the addresses of the node are, and those of its pods on other segments; a new configuration moves them at once.
func TestPlaces(t *testing.T) {
	for name, tt := range map[string]struct {
		config string
		gossip string
		want   string // the places of the addresses below, in order
	}{
		"usual":                      {"", "192.168.7.1", "1 1 1 0 0 2 0"},
		"nobody is asked":            {"segments: {ask: off}", "192.168.7.1", "3 3 3 0 0 2 0"},
		"exclusive on every device":  {"exclusive: [10.9.0.0/16]", "192.168.7.1", "1 1 1 3 0 2 0"},
		"exclusive and nobody asked": {"exclusive: [10.9.0.0/16]\nsegments: {ask: off}", "192.168.7.1", "3 3 3 3 0 2 0"},
		"alone":                      {"exclusive: [10.9.0.0/16]", "", "0 0 0 0 0 2 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, "")
			if tt.gossip != "" {
				w.Own.opts.GossipAddress = netip.MustParseAddr(tt.gossip)
			}
			w.add("veth0", "cni0", "eth0", 2, 7) // a primary interface
			host := func(ip, device, parent string, index, bits int) links.HostAddress {
				a := netip.MustParseAddr(ip)
				return links.HostAddress{IP: a, Subnet: netip.PrefixFrom(a, bits).Masked(), Device: device, Parent: parent, Index: index}
			}
			list := []links.HostAddress{
				host("192.168.7.1", "eth0", "", 10, 24), host("203.0.113.7", "eth0", "", 10, 32), host("203.0.113.8", "vrrp.1", "eth0", 11, 32),
				host("10.9.0.9", "eth1", "", 12, 24), host("10.8.0.9", "vrrp.2", "eth1", 13, 32), host("10.244.0.1", "cni0", "", 14, 24),
				host("fd69::2", "eth0", "", 10, 125), // of OVN-Kubernetes, on each node
			}
			w.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now())
			places := make(map[netip.Addr]detector.Place)
			for _, o := range w.Configure(parsed(t, tt.config), time.Now()) {
				places[o.Sighting.Key.IP] = o.Sighting.Holder.Place
			}
			var got []string
			for _, a := range list {
				o, ok := w.Own.Find(list, detector.Key{Network: "default", IP: a.IP}, time.Now())
				if !ok {
					t.Fatalf("%s is not found", a.IP)
				}
				if place, moved := places[a.IP]; moved && place != o.Sighting.Holder.Place {
					t.Errorf("%s: place %d by the new configuration, and %d by a list", a.IP, place, o.Sighting.Holder.Place)
				}
				got = append(got, strconv.Itoa(int(o.Sighting.Holder.Place)))
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("places %s, want %s", text, tt.want)
			}
			if devices := w.Own.Segments(); (len(devices) > 0) != (tt.gossip != "" && !strings.Contains(tt.config, "ask: off")) {
				t.Errorf("segments %v", devices)
			}
		})
	}
}

// TestGatewayOfFirstPod: the address of a bridge is that of a gateway as long as a pod is on it.
func TestGatewayOfFirstPod(t *testing.T) {
	w := newHarness(t, "")
	list := []links.HostAddress{{IP: netip.MustParseAddr("10.244.0.1"), Subnet: netip.MustParsePrefix("10.244.0.0/24"), Device: "cni0", Index: 14}}
	check := func(e links.Event, want ...detector.Place) {
		t.Helper()
		var got []detector.Place
		_, all := w.Update(e, time.Now())
		for _, o := range all {
			if o.Sighting.Key.IP == list[0].IP {
				got = append(got, o.Sighting.Holder.Place)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: places %v, want %v", e.Kind, got, want)
		}
	}
	check(links.Event{Kind: links.HostAddresses, Host: list}, 0)
	first, second := link("veth0", "cni0", "eth0", 2, 7), link("veth1", "cni0", "eth0", 3, 8)
	check(links.Event{Kind: links.Added, Interface: first}, detector.PlaceBridge)
	check(links.Event{Kind: links.Added, Interface: second})
	check(links.Event{Kind: links.Removed, Interface: first})
	check(links.Event{Kind: links.Removed, Interface: second}, 0)
}

// TestSegments: the devices that are listened on, each once; none of VLANs, and none of which the configuration says what it joins.
func TestSegments(t *testing.T) {
	w := newHarness(t, "")
	w.GossipAddress = netip.MustParseAddr("192.168.7.1")
	w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{{IP: w.GossipAddress, Subnet: netip.MustParsePrefix("192.168.7.0/24"), Device: "eth0", Index: 10}}}, time.Now())
	for n, parent := range []string{"eth1", "eth0", "eth1", "eth2", "eth4.100"} {
		w.inside(parent, n+1, uint64(n+1))
	}
	check := func(want ...string) {
		t.Helper()
		if got := w.Own.Segments(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("eth0", "eth1", "eth2")
	w.Configure(parsed(t, `networks: [{name: two, scope: node, match: {bridges: ["eth2"]}}]`), time.Now())
	check("eth0", "eth1")
	w.Configure(parsed(t, ""), time.Now())
	check("eth0", "eth1", "eth2")
}
