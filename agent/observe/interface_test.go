package observe

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

// What a pod announces unasked is a claim if it has the address on a device that is not observed. Then its answers
// count, too, for as long as evidence lives.
func TestClaims(t *testing.T) {
	const own, claimed = "10.0.0.5", "10.0.0.6"
	elsewhere := func(l *links.Interface) {
		l.View.Taken = time.Now().Add(time.Hour)
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(claimed), Where: netns.Elsewhere, Valid: true})
	}
	only := func(change func(*links.Interface)) func(*links.Interface) {
		return func(l *links.Interface) { l.View.Taken = time.Now().Add(time.Hour); change(l) }
	}
	now := time.Now()
	type step struct {
		kind bpf.Kind
		at   time.Duration
		want detector.Evidence
	}
	for name, test := range map[string]struct {
		change func(*links.Interface)
		steps  []step
	}{
		"an answer without a claim": {elsewhere, []step{{bpf.Answer, 0, detector.Forwarded}}},
		"a claim, and answers until it is old": {elsewhere, []step{
			{bpf.Gratuitous, 0, detector.Claimed},
			{bpf.Answer, time.Second, detector.Claimed},
			{bpf.Answer, claimFor - time.Second, detector.Claimed},
			{bpf.Answer, claimFor + time.Second, detector.Forwarded},
			{bpf.Gratuitous, claimFor + time.Second, detector.Claimed},
			{bpf.Answer, 2 * claimFor, detector.Claimed},
		}},
		"only what is unasked is a claim": {elsewhere, []step{{bpf.Announced, 0, detector.Forwarded}, {bpf.Data, 0, detector.Forwarded}, {bpf.Answer, 0, detector.Forwarded}}},
		"its kernel does not have it":     {only(func(*links.Interface) {}), []step{{bpf.Gratuitous, 0, detector.Forwarded}, {bpf.Answer, 0, detector.Forwarded}}},
		"it has more than are listed":     {only(func(l *links.Interface) { l.View.More = true }), []step{{bpf.Gratuitous, 0, detector.Claimed}, {bpf.Answer, 0, detector.Claimed}}},
		"the list is not complete for the interface": {only(func(l *links.Interface) { l.View.Truncated, l.View.More = true, true }), []step{
			{bpf.Gratuitous, 0, detector.Announced}, {bpf.Answer, 0, detector.Announced},
		}},
		"it has it with other tags on the same interface": {only(func(l *links.Interface) {
			l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(claimed), Where: netns.OnPeer, OuterVLAN: 7, Valid: true})
		}), []step{{bpf.Gratuitous, 0, detector.Claimed}, {bpf.Answer, 0, detector.Claimed}}},
		"a local route on another device": {only(func(l *links.Interface) {
			l.View.LocalRoutes = []netns.LocalRoute{{Prefix: netip.MustParsePrefix("10.0.0.6/31"), Where: netns.Elsewhere}}
		}), []step{{bpf.Gratuitous, 0, detector.Claimed}, {bpf.Answer, 0, detector.Claimed}}},
		"detection failed there": {only(func(l *links.Interface) {
			elsewhere(l)
			l.View.Addresses[1].Lost = true
		}), []step{{bpf.Gratuitous, 0, detector.Forwarded}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, "")
			i := w.add("veth0", "cni0", "eth0", 2, 7, own)
			w.change(i, test.change)
			for n, s := range test.steps {
				o, ok := w.Record(i.packet(s.kind, claimed, now.Add(s.at)))
				if !ok || o.Sighting.Evidence != s.want || o.Sighting.Answer != (s.kind == bpf.Answer) || o.Sighting.Key.Network != "default" {
					t.Errorf("step %d: %+v, %t; want %v", n, o.Sighting, ok, s.want)
				}
			}
		})
	}
}

// A claim ends when its address leaves the netns, and not when others do.
func TestClaimEnds(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	scan := func(elsewhere ...string) []Observation {
		return w.change(i, func(l *links.Interface) {
			l.View.Taken, l.View.Addresses = time.Now(), l.View.Addresses[:1]
			for _, ip := range elsewhere {
				l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.Elsewhere, Valid: true})
			}
		})
	}
	scan("10.0.0.6", "10.0.0.7")
	for _, ip := range []string{"10.0.0.6", "10.0.0.7"} {
		o, _ := w.Record(i.packet(bpf.Gratuitous, ip, time.Now().Add(-time.Second)))
		if o.Sighting.Evidence != detector.Claimed {
			t.Fatalf("%+v", o.Sighting)
		}
		w.bindings = append(w.bindings, detector.Binding{Key: o.Sighting.Key, Holder: o.Sighting.Holder})
	}
	w.bindings = append(w.bindings, detector.Binding{ // a guest has it in a VLAN
		Key: detector.Key{Network: "default.100", IP: netip.MustParseAddr("10.0.0.6")}, Holder: w.bindings[0].Holder, Evidence: detector.Announced,
	})
	passes := w.passes
	if all := scan("10.0.0.7"); len(all) != 1 || all[0].Kind != Withdrawn || all[0].Sighting.Key.IP.String() != "10.0.0.6" {
		t.Errorf("one left: %+v", all)
	}
	if all := w.change(i, func(l *links.Interface) { l.View.Addresses, l.View.More = l.View.Addresses[:1], true }); len(all) != 0 {
		t.Errorf("it may be among those that are not listed: %+v", all)
	}
	if all := w.change(i, func(l *links.Interface) {
		l.View.More, l.View.LocalRoutes = false, []netns.LocalRoute{{Prefix: netip.MustParsePrefix("10.0.0.7/32"), Where: netns.OnLoopback}}
	}); len(all) != 0 {
		t.Errorf("a local route to it is left: %+v", all)
	}
	if n := w.passes - passes; n != 1 {
		t.Errorf("all bindings were searched %d times", n)
	}
}

// An address on a device to which another observed interface leads is seen there.
func TestNoClaimOfAnObservedDevice(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	w.change(i, func(l *links.Interface) {
		l.View.Taken = time.Now().Add(time.Hour)
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.9.0.5"), Where: netns.Elsewhere, Valid: true})
	})
	net1 := w.add("veth1", "br1", "net1", 3, 7, "10.9.0.5")
	for state, want := range map[links.State]detector.Evidence{links.Attached: detector.Forwarded, links.Pending: detector.Claimed, links.Failed: detector.Claimed} {
		w.change(net1, func(l *links.Interface) { l.State = state })
		if o, ok := w.Record(i.packet(bpf.Gratuitous, "10.9.0.5", time.Now())); !ok || o.Sighting.Evidence != want {
			t.Errorf("the other is %s: %+v, %t; want %v", state, o.Sighting, ok, want)
		}
	}
}

// A claim is decided by a list that was made after it, and ends with the holder.
func TestClaimsAndScans(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	w.change(i, func(l *links.Interface) {
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.0.0.6"), Where: netns.Elsewhere, Valid: true})
	})
	if o, ok := w.Record(i.packet(bpf.Gratuitous, "10.0.0.6", time.Now())); ok || len(w.rescans) != 1 {
		t.Errorf("%+v, %t before a scan", o.Sighting, ok)
	}
	all := w.change(i, func(l *links.Interface) { l.View.Taken = time.Now().Add(time.Hour) })
	if len(all) != 1 || all[0].Sighting.Evidence != detector.Claimed || len(i.claimed) != 1 {
		t.Errorf("after the scan: %+v", all)
	}
	if w.change(i, func(l *links.Interface) { l.View.Cookie = 8 }); len(i.claimed) != 0 {
		t.Error("the next netns has the claims of the one before it")
	}
}

// The claims of an interface are bounded; the oldest make room.
func TestClaimsAreBounded(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	w.change(i, func(l *links.Interface) { l.View.Taken, l.View.More = time.Now().Add(time.Hour), true })
	now := time.Now()
	ip := func(n int) string { return fmt.Sprintf("10.1.%d.%d", n/256, n%256) }
	for n := range 2 * maxClaims {
		w.Record(i.packet(bpf.Gratuitous, ip(n), now.Add(time.Duration(n)*time.Millisecond)))
	}
	_, oldest := i.claimed[netip.MustParseAddr(ip(0))]
	_, latest := i.claimed[netip.MustParseAddr(ip(2*maxClaims-1))]
	if len(i.claimed) != maxClaims || oldest || !latest {
		t.Errorf("%d claims, the oldest %t, the latest %t", len(i.claimed), oldest, latest)
	}
	if n := bounds.Counts()["too many addresses that a pod only announces"]; n < maxClaims || w.Records.Dropped()[droppedView] != 1 {
		t.Errorf("%d were counted, dropped %v", n, w.Records.Dropped())
	}
}
