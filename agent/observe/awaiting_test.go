package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

// What a later scan finds takes the place of an answer: an address that is valid, on a device that is up, where packets arrive.
func TestScanFor(t *testing.T) {
	ip := netip.MustParseAddr("10.0.0.5")
	only := func(a netns.Address) func(*links.Interface) {
		a.IP = ip
		return func(l *links.Interface) { l.View.Addresses = []netns.Address{a} }
	}
	for name, test := range map[string]struct {
		change func(*links.Interface)
		found  bool
	}{
		"it is there": {func(*links.Interface) {}, true},
		"on lo alone": {only(netns.Address{Where: netns.OnLoopback, Valid: true}), true},
		"on lo beside another": {func(l *links.Interface) {
			l.View.Addresses[0].Where = netns.OnLoopback
			l.View.Addresses = append(l.View.Addresses, netns.Address{IP: ip.Next(), Where: netns.OnPeer, Valid: true})
		}, false},
		"by a local route": {func(l *links.Interface) {
			l.View.Addresses, l.View.LocalRoutes = nil, []netns.LocalRoute{{Prefix: netip.PrefixFrom(ip, 32), Where: netns.OnLoopback}}
		}, true},
		"it is not":                {func(l *links.Interface) { l.View.Addresses = nil }, false},
		"tentative":                {only(netns.Address{Where: netns.OnPeer}), false},
		"lost":                     {only(netns.Address{Where: netns.OnPeer, Valid: true, Lost: true}), false},
		"on a device that is down": {only(netns.Address{Where: netns.OnPeer, Valid: true, Down: true}), false},
		"on a nested device":       {only(netns.Address{Where: netns.Elsewhere, Valid: true}), false},
		"on a VLAN":                {only(netns.Address{Where: netns.OnPeer, Valid: true, OuterVLAN: 100}), false},
		"the netns is not found":   {func(l *links.Interface) { l.Seen, l.View = false, netns.View{} }, false},
		"it is another netns":      {func(l *links.Interface) { l.View.Cookie = 8 }, false},
	} {
		w := newHarness(t, "")
		i := w.add("veth0", "", "eth0", 2, 7, ip.String())
		seen := func(all []Observation) (found []detector.Sighting) {
			for _, o := range all {
				if o.Kind == Seen {
					found = append(found, o.Sighting)
				}
			}
			return found
		}
		now := time.Now()
		w.ScanFor(i.Ref, ip, bpf.VLAN{}, now)
		if len(w.rescans) != 1 || w.rescans[0] != i.Generation {
			t.Fatalf("%s: rescans %v", name, w.rescans)
		}
		// An event without a scan, or with one that began earlier, says nothing.
		if all := seen(w.change(i, func(l *links.Interface) { l.Up = false })); len(all) != 0 {
			t.Errorf("%s: an event without a scan makes %+v", name, all)
		}
		taken := now.Add(time.Millisecond)
		all := seen(w.change(i, func(l *links.Interface) { l.View.Taken = taken; test.change(l) }))
		switch {
		case !test.found && len(all) == 0:
		case !test.found || len(all) != 1:
			t.Errorf("%s: %+v", name, all)
		case all[0].Evidence != detector.Configured || !all[0].Answer || !all[0].At.Equal(taken) || all[0].Holder.ID != i.Holder ||
			all[0].Key != (detector.Key{Network: "default", IP: ip}):
			t.Errorf("%s: %+v", name, all[0])
		}
		// It was scanned for once.
		if all := seen(w.change(i, func(l *links.Interface) {
			*l = *link("veth0", "", "eth0", 2, 7, ip.String())
			l.View.Taken = taken.Add(time.Second)
		})); len(all) != 0 && name != "the netns is not found" {
			t.Errorf("%s: a later scan makes %+v", name, all)
		}
	}
}

// What is scanned for is bounded.
func TestScanRequestsAreBounded(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	now, ip := time.Now(), netip.MustParseAddr("10.0.0.5")
	w.ScanFor(i.Ref, ip, bpf.VLAN{}, now)
	next := ip
	for range 2 * maxScanRequests {
		next = next.Next()
		w.ScanFor(i.Ref, next, bpf.VLAN{}, now)
	}
	if n := len(i.awaiting.requests); n != maxScanRequests {
		t.Errorf("%d addresses are scanned for, want %d", n, maxScanRequests)
	}
	if n := bounds.Counts()["too many addresses to scan for"]; n < maxScanRequests {
		t.Errorf("%d were counted", n)
	}
	// A scan that began before the last request is no answer to that.
	w.ScanFor(i.Ref, ip, bpf.VLAN{}, now.Add(2*time.Second))
	for _, step := range []struct {
		after time.Duration
		left  int
	}{{time.Second, 1}, {3 * time.Second, 0}} {
		taken := now.Add(step.after)
		if all := w.change(i, func(l *links.Interface) { l.View.Taken = taken }); len(all) != 1 || len(i.awaiting.requests) != step.left || !all[0].Sighting.At.Equal(taken) {
			t.Errorf("after %v: %+v, and %d are scanned for", step.after, all, len(i.awaiting.requests))
		}
	}
	w.ScanFor(detector.Interface{Ifindex: 99}, ip, bpf.VLAN{}, now) // it is gone
}
