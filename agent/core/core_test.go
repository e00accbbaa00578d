package core

import (
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestSilentPod: an address that a pod has configured is probed, and its answer makes the binding. After
// the binding has ended the address is probed again, unless it was removed.
func TestSilentPod(t *testing.T) {
	l := newHarness(t, "")
	i := l.add(t, 2, 42, "10.0.0.1", "10.0.0.2")
	if l.probes != 2 {
		t.Fatalf("%d probes, want one for each address", l.probes)
	}
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		l.packet(i, bpf.Answer, ip)
	}
	if n := len(l.Detector.Bindings(nil)); n != 2 || !l.Prober.Next().IsZero() {
		t.Fatalf("%d bindings, the next probe at %v; want two and none", n, l.Prober.Next())
	}
	l.pass(time.Hour, time.Second)
	if n := len(l.Detector.Bindings(nil)); n != 0 {
		t.Fatalf("%d bindings an hour later", n)
	}
	if l.unanswered(i) == 0 {
		t.Error("an address whose binding has expired is not probed")
	}
	l.packet(i, bpf.Answer, "10.0.0.1")
	next := *i.Interface
	next.View.Addresses = next.View.Addresses[1:]
	l.Update(links.Event{Kind: links.Changed, Interface: &next})
	l.Turn()
	if l.Prober.Run(l.now); l.unanswered(i) != 0 {
		t.Error("a removed address is probed")
	}
}

// TestSuppressedLonger: a pod that answers pending probes but no verification is suppressed longer each
// time.
func TestSuppressedLonger(t *testing.T) {
	l := newHarness(t, "")
	i, honest := l.add(t, 2, 42, "10.0.0.1"), l.add(t, 3, 43, "10.0.0.1")
	key := detector.Key{Network: "default", IP: one}
	answers := func(who *observe.Interface) {
		l.Exchange.Observe(detector.Sighting{
			Key: key, Holder: who.Describe([6]byte{2}), Evidence: detector.Announced, Answer: true, At: l.now,
		}, l.now)
	}
	last := time.Duration(0)
	for round := range 6 {
		answers(i)
		began := l.now
		for end := l.now.Add(10 * time.Second); l.now.Before(end) && (l.now.Equal(began) || l.Detector.Holds(key, i.Holder)); l.now = l.now.Add(50 * time.Millisecond) {
			answers(honest)
			l.Tick()
			l.Turn()
		}
		if l.Detector.Holds(key, i.Holder) {
			t.Fatalf("round %d: it still holds the address", round)
		}
		until := l.Detector.SuppressedUntil(key, i.Holder)
		wait := max(0, until.Sub(l.now))
		if round >= 3 && wait <= last {
			t.Errorf("round %d: it is suppressed for %v, after %v before", round, wait, last)
		}
		last = wait
	}
	if last < 10*time.Second {
		t.Fatalf("in the end it is suppressed for %v", last)
	}
	for n := range 20 { // announcements do not change when the probe is due
		l.packet(i, bpf.Announced, "10.0.0.1")
		if at := l.Prober.Next(); at.Before(l.now) {
			t.Fatalf("announcement %d: the next probe is due at once", n)
		}
	}
}

// TestLimitsOfTheConfiguration take effect at the start and at a reload.
func TestLimitsOfTheConfiguration(t *testing.T) {
	l := newHarness(t, "limits: {verifyPerSecond: 7, bindings: 1, bindingsPerInterface: 1}")
	allowed := func() (n int) {
		for now := l.now.Add(time.Minute); l.Prober.Budget.Allow(detector.Verify, false, now); n++ {
		}
		return n
	}
	if n := allowed(); n != 7 {
		t.Errorf("%d probes at once, want 7", n)
	}
	i := l.add(t, 2, 7, "10.0.0.5", "10.0.0.6")
	l.packet(i, bpf.Announced, "10.0.0.5")
	l.packet(i, bpf.Announced, "10.0.0.6")
	if n := len(l.Detector.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings, want 1", n)
	}
	l.Configure(parsed(t, ""))
	l.packet(i, bpf.Announced, "10.0.0.6")
	if n := len(l.Detector.Bindings(nil)); n != 2 {
		t.Errorf("%d bindings after the limit was lifted, want 2", n)
	}
	if n := allowed(); n < 990 || n > 1000 {
		t.Errorf("%d probes at once after the reload, want 1000", n)
	}
}

// TestReloadMovesBindings: a reload moves bindings in the detector's table and the pending probes.
func TestReloadMovesBindings(t *testing.T) {
	l := newHarness(t, "")
	i := l.add(t, 2, 7, "10.0.0.1", "10.0.0.2")
	l.packet(i, bpf.Announced, "10.0.0.2")
	l.Configure(parsed(t, "networks: [{name: storage, match: {peers: [eth0]}}]"))
	l.Turn()
	if b := l.Detector.Bindings(nil); len(b) != 1 || b[0].Key.Network != "storage" || b[0].Key.IP.String() != "10.0.0.2" {
		t.Errorf("bindings %+v", b)
	}
	l.Configure(parsed(t, "networks: [{name: storage, solicit: off, match: {peers: [eth0]}}]"))
	if at := l.Prober.Next(); !at.IsZero() {
		t.Errorf("a probe is pending at %v where they are switched off", at)
	}
}

// TestNames: a late name is added to the bindings.
func TestNames(t *testing.T) {
	l := newHarness(t, "")
	i := l.add(t, 2, 7, "10.0.0.1")
	l.packet(i, bpf.Announced, "10.0.0.1")
	pod := detector.Pod{Namespace: "shop", Name: "web-1"}
	l.SaveNow()
	l.Name(pods.Change{Cookie: 7, Pod: pod})
	if b := l.Detector.Bindings(nil); len(b) != 1 || b[0].Holder.Pod != pod || l.saveAt.IsZero() {
		t.Errorf("bindings %+v, saved at %v", b, l.saveAt)
	}
}
