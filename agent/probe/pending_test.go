package probe

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/schedule"
)

// TestExpect: an address without a binding is probed, at growing intervals, until it has one.
func TestExpect(t *testing.T) {
	w := newHarness()
	w.held[key("10.0.0.2")] = true
	ref := w.pod(t, 2, nil, "10.0.0.1", "10.0.0.2")
	began := start
	now := began
	for range 8 {
		w.Run(now)
		now = w.Next()
	}
	if len(w.targets) != 8 || w.targets[0].IP.String() != "10.0.0.1" || w.targets[0].Ifindex != 2 {
		t.Fatalf("probed %v, want 10.0.0.1 eight times", w.targets)
	}
	// 8 s for the first six, then one each 30 s.
	if took := now.Sub(began); took < 3*laterPause || took > 3*laterPause+10*time.Second {
		t.Errorf("eight probes and the pause after them took %v", took)
	}
	if n := w.Unanswered(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}); n != len(pauses) {
		t.Errorf("%d unanswered, want %d", n, len(pauses))
	}
	w.held[key("10.0.0.1")] = true
	if w.Run(now); len(w.targets) != 8 || !w.Next().IsZero() {
		t.Errorf("%d probes of an address with a binding", len(w.targets))
	}
}

// TestObservedEndsPending: an answer or announcement ends a pending probe, unless the holder's
// announcements are suppressed.
func TestObservedEndsPending(t *testing.T) {
	for _, test := range []struct {
		name       string
		evidence   detector.Evidence
		answer     bool
		suppressed bool
		ends       bool
	}{
		{"announcement", detector.Announced, false, false, true},
		{"answer", detector.Announced, true, false, true},
		{"data", detector.Data, false, false, false},
		{"what its kernel has configured", detector.Configured, true, false, true},
		{"answer for another's address", detector.Forwarded, true, false, false},
		{"suppressed announcement", detector.Announced, false, true, false},
		{"answer of a suppressed holder", detector.Announced, true, true, true},
	} {
		w := newHarness()
		ref := w.pod(t, 2, nil, "10.0.0.1")
		now := start
		if test.suppressed {
			w.suppressed[key("10.0.0.1")] = now.Add(time.Minute)
		}
		w.Observed(ref, bpf.VLAN{}, &detector.Sighting{Key: key("10.0.0.1"), Evidence: test.evidence, Answer: test.answer, At: now}, [6]byte{})
		if ended := len(w.pendingOf(ref)) == 0; ended != test.ends {
			t.Errorf("%s: ends %t", test.name, ended)
		}
	}
}

// TestReprobe: an address is probed again when its binding has ended; one of a suppressed holder when the
// suppression has ended.
func TestReprobe(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, nil)
	now := start
	w.suppressed[key("10.0.0.2")] = now.Add(time.Minute)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		w.Reprobe(ref, key(ip), bpf.VLAN{}, now)
	}
	for ip, want := range map[string]time.Time{"10.0.0.1": now, "10.0.0.2": now.Add(time.Minute)} {
		if p := w.pendingOf(ref)[address{ip: netip.MustParseAddr(ip)}]; p == nil || !p.next.Equal(want) {
			t.Errorf("%s: pending %+v, want it at %v", ip, p, want)
		}
	}
}

// TestChangesOfAnInterface: a removed address is not pending; probes that could not be answered start
// again.
func TestChangesOfAnInterface(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, func(l *links.Interface) { l.Up = false }, "10.0.0.1", "10.0.0.2")
	now := start
	w.Run(now)
	w.Expect(ref, each(key("10.0.0.1")), each(), now)
	if p := w.pendingOf(ref); len(p) != 1 || p[address{ip: netip.MustParseAddr("10.0.0.1")}].tries != 1 {
		t.Fatalf("pending %v, want 10.0.0.1 alone, after one attempt", p)
	}
	w.pod(t, 2, nil, "10.0.0.1")
	if p := w.pendingOf(ref); len(p) != 1 || p[address{ip: netip.MustParseAddr("10.0.0.1")}].tries != 0 {
		t.Errorf("pending %v, want a new probe after the interface came up", p)
	}
	other := key("10.0.0.1")
	other.Network = "storage"
	w.Expect(ref, each(other), each(), now)
	if p := w.pendingOf(ref); len(p) != 1 || p[address{ip: other.IP}].key != other {
		t.Errorf("pending %v, want it in the network that it moved to", p)
	}
	w.off["storage"] = true
	if w.Run(now); len(w.pendingOf(ref)) != 0 {
		t.Error("pending in a network without probes")
	}
}

// TestRemoved: a removed address is probed a few times. If it comes back, it is like any other.
func TestRemoved(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, nil)
	w.Expect(ref, each(), each(key("10.0.0.1")), start)
	w.Expect(ref, each(), each(), start) // another change
	for tries := 0; !w.Next().IsZero(); tries++ {
		if tries > 2*len(pauses) {
			t.Fatal("the probes do not end")
		}
		w.Run(w.Next())
	}
	if len(w.targets) != len(pauses)+1 {
		t.Errorf("%d probes, want %d", len(w.targets), len(pauses)+1)
	}
	w.Expect(ref, each(), each(key("10.0.0.1")), start)
	w.Expect(ref, each(key("10.0.0.1")), each(), start)
	if p := w.pendingOf(ref)[address{ip: netip.MustParseAddr("10.0.0.1")}]; p == nil || p.removed {
		t.Errorf("pending %+v after the address came back", p)
	}
}

// TestEachAddressIsProbed: a pod may have any number of silent addresses up to the limit of a scan. Each is probed,
// and neither the pod's own verification nor other pods' probes wait for that.
func TestEachAddressIsProbed(t *testing.T) {
	const many, others = 1024, 30
	w := newHarness()
	var keys []detector.Key
	for n := range many {
		keys = append(keys, detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})})
	}
	crowded := w.pod(t, 2, nil)
	now := start
	began := now
	w.Expect(crowded, each(keys...), each(), now)
	probed := make(map[netip.Addr]bool)
	for step := 0; len(probed) < many+others; step++ {
		if now = schedule.Later(now, w.Next()); now.Sub(began) > time.Minute {
			t.Fatalf("%d of %d addresses were probed within a minute", len(probed), many+others)
		}
		w.Run(now)
		for _, target := range w.targets {
			probed[target.IP] = true
		}
		w.targets = nil
		if step < others { // the next pod comes
			ip := netip.AddrFrom4([4]byte{10, 2, 0, byte(step)}).String()
			w.now = now
			pod := w.pod(t, 3+step, nil, ip)
			came := now
			for !probed[netip.MustParseAddr(ip)] {
				if now = schedule.Later(now, w.Next()); now.Sub(came) > 200*time.Millisecond {
					t.Fatalf("pod %d waits for %v", step, now.Sub(came))
				}
				w.Run(now)
				for _, target := range w.targets {
					probed[target.IP] = true
				}
			}
			refresh := verify(pod, ip)
			refresh.Purpose = detector.Refresh
			for _, s := range []detector.Probe{refresh, verify(crowded, "10.1.0.1")} {
				if r := w.Probe(s, bpf.VLAN{}, false, now); r != (detector.ProbeRefusal{}) {
					t.Errorf("%v is refused: %+v", s, r)
				}
			}
			w.held[key(ip)] = true
		}
	}
	if took := now.Sub(began); took < 5*time.Second {
		t.Errorf("1,024 addresses were probed within %v, above the limits", took)
	}
}

// TestTurns: interfaces share the node's budget equally, however it is spent.
func TestTurns(t *testing.T) {
	const pods, rate = 6, 100 // five probes at a time: one less than there are pods
	w := newHarness()
	now := start
	for pod := range pods {
		var keys []detector.Key
		for n := range 500 {
			keys = append(keys, detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, byte(pod), byte(n >> 8), byte(n)})})
		}
		w.Expect(w.pod(t, 2+pod, nil), each(keys...), each(), now)
	}
	for end := now.Add(6 * time.Second); !now.After(end); now = schedule.Later(now, w.Next()) {
		w.Run(now)
	}
	sent := make(map[int]int)
	for _, target := range w.targets {
		sent[target.Ifindex]++
	}
	for pod := range pods {
		if n := sent[2+pod]; n < rate*9/10 || n > rate*13/10 {
			t.Errorf("probes by interface: %v, want about %d each", sent, rate)
			break
		}
	}
}

// TestInterfaceLimitOfPending: the pending probes of one interface stay below the observer's limit for answers,
// however large the node's budget is.
func TestInterfaceLimitOfPending(t *testing.T) {
	w := newHarness()
	w.Budget = NewBudget(1000, 10_000)
	ref := w.pod(t, 2, nil)
	var keys []detector.Key
	for n := range 1000 {
		keys = append(keys, detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})})
	}
	now := start
	w.Expect(ref, each(keys...), each(), now)
	end := now.Add(time.Second)
	for ; !now.After(end); now = w.Next() {
		w.Run(now)
	}
	if n := len(w.targets); n < interfaceBurst/2 || n > interfaceBurst/2+interfaceRate {
		t.Errorf("%d probes within a second, want %d to %d", n, interfaceBurst/2, interfaceBurst/2+interfaceRate)
	}
}

// TestRemovedAreBounded: a pod may remove addresses all the time.
func TestRemovedAreBounded(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, nil)
	var keys []detector.Key
	for n := range maxRemoved + 5 {
		keys = append(keys, detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})})
	}
	w.Expect(ref, each(), each(keys...), start)
	if n := len(w.pendingOf(ref)); n != maxRemoved || w.Dropped()[DroppedAddresses] != 5 {
		t.Errorf("%d pending, dropped %v", n, w.Dropped())
	}
	w.Expect(ref, each(keys[maxRemoved:]...), each(), start)
	if n := len(w.pendingOf(ref)); n != maxRemoved+5 {
		t.Errorf("%d pending, want those of configured addresses, too", n)
	}
	w.Forget(ref)
	if !w.Next().IsZero() {
		t.Error("probes are pending on an interface that is gone")
	}
}

// TestAnotherNetns: the attempts of one netns do not count for the next one behind the same interface.
func TestAnotherNetns(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, nil, "10.0.0.1")
	now := start
	w.Run(now)
	i := w.interfaces[ref].Interface
	i.Holder.Netns++
	w.Follow(i)
	w.Expect(ref, each(key("10.0.0.1")), each(), now)
	if p := w.pendingOf(ref)[address{ip: netip.MustParseAddr("10.0.0.1")}]; p == nil || p.tries != 0 || !p.next.Equal(now) {
		t.Errorf("pending %+v, want it at once", p)
	}
	if id, _, _ := w.Asked(w.targets[0].Source); id == i.Holder {
		t.Error("a probe to one netns counts as one to the next")
	}
}

// TestLostNetnsIsNotProbed: a netns that is being removed would answer beside the next pod with its
// address.
func TestLostNetnsIsNotProbed(t *testing.T) {
	w := newHarness()
	gone := w.pod(t, 2, func(l *links.Interface) { l.Netns.Path = filepath.Join(t.TempDir(), "gone") }, "10.0.0.1")
	there := w.pod(t, 3, nil, "10.0.0.2")
	now := start
	w.Run(now)
	for ref, want := range map[detector.Interface]int{gone: 0, there: 1} {
		for a, p := range w.pendingOf(ref) {
			if turn := w.interfaces[ref].turn; p.tries != want || !turn.After(now) {
				t.Errorf("%v was probed %d times and is probed next in %v, want %d and later", a.ip, p.tries, turn.Sub(now), want)
			}
		}
	}
	if len(w.rescans) != 1 || w.rescans[0] != 2 {
		t.Errorf("scanned again: %v, want the one that is being removed", w.rescans)
	}
}
