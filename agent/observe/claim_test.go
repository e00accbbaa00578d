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

// An address on a device to which another observed interface leads is seen there.
func TestNoClaimOfAnObservedDevice(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	w.change(i, func(l *links.Interface) {
		l.View.Taken = time.Now().Add(time.Hour)
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.9.0.5"), Where: netns.Elsewhere, Valid: true})
	})
	w.add("veth1", "br1", "net1", 3, 7, "10.9.0.5")
	if o, ok := w.Record(i.packet(bpf.Gratuitous, "10.9.0.5", time.Now())); !ok || o.Sighting.Evidence != detector.Forwarded {
		t.Errorf("%+v, %t; want forwarded", o.Sighting, ok)
	}
}

// The claims of an interface are bounded; the oldest make room.
func TestClaimsAreBounded(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	w.change(i, func(l *links.Interface) { l.View.Taken, l.View.More = time.Now().Add(time.Hour), true })
	now := time.Now()
	for n := range 3 * maxClaims {
		w.Record(i.packet(bpf.Gratuitous, fmt.Sprintf("10.1.0.%d", n%256), now.Add(time.Duration(n))))
	}
	_, oldest := i.claimed[netip.MustParseAddr("10.1.0.0")]
	_, latest := i.claimed[netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", 3*maxClaims-1))]
	if len(i.claimed) != maxClaims || oldest || !latest {
		t.Errorf("%d claims, the oldest %t, the latest %t", len(i.claimed), oldest, latest)
	}
}
