package observe

import (
	"net/netip"
	"slices"
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
	if got := w.HostIPs(); !slices.Equal(got, []netip.Addr{ip}) {
		t.Errorf("the node's addresses are %v", got)
	}
	var many []links.HostAddress
	for n := range 1000 {
		many = append(many, links.HostAddress{IP: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), Device: "eth0", Index: 2})
	}
	list(many...)
	if n := len(w.HostIPs()); n != maxHostKeys {
		t.Errorf("%d addresses of the node are kept, want %d", n, maxHostKeys)
	}
	o, ok := w.FindHost(many, detector.Key{Network: "default", IP: many[999].IP}, time.Now())
	if !ok || o.Sighting.Key.IP != many[999].IP || o.Sighting.Holder.InterfaceName != "eth0" {
		t.Errorf("found %+v, %t", o, ok)
	}
	if o, ok := w.FindHost(many, detector.Key{Network: "a", IP: many[999].IP}, time.Now()); ok {
		t.Errorf("found in another network: %+v", o)
	}
}
