package probe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// admit reserves rounds of addresses behind an interface until there is no room, a moment before every step, and returns how many there were.
func (w *harness) admit(ref detector.Interface, next *int, again time.Duration, yields bool, now time.Time) (n int, until time.Time) {
	for ; ; n++ {
		at := time.Time{}
		if again > 0 {
			at = now.Add(again)
		}
		until, _ = w.Reserve([]detector.Probe{verify(ref, addressOf(*next).String())}, at, now, yields)
		if !until.IsZero() {
			return n, until
		}
		*next++
	}
}

func addressOf(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}) }

// Both rounds of what is admitted are sent when they are due, whatever else is sent meanwhile, and neither an interface nor the node exceeds its limit.
func TestReserved(t *testing.T) {
	for name, tt := range map[string]struct {
		pods  int
		rate  float64 // of admitted addresses, a second
		burst int
	}{
		"one interface": {1, interfaceRate / 2, interfaceBurst * 3 / 4},
		"the node":      {20, 500, 1000},
	} {
		w := newHarness()
		w.Budget = NewBudget(1000, 100)
		var refs []detector.Interface
		for i := range tt.pods {
			refs = append(refs, w.pod(t, i+2, nil))
		}
		type round struct {
			at time.Time
			detector.Probe
		}
		var rounds []round
		next, admitted := 0, 0
		for step := range 1000 { // 10 s
			now := start.Add(time.Duration(step) * 10 * time.Millisecond)
			for p, ref := range refs {
				first := next
				n, until := w.admit(ref, &next, time.Second, false, now)
				if !until.After(now) {
					t.Fatalf("%s: interface %d: no room until %v", name, p, until.Sub(now))
				}
				if admitted += n; step == 0 && n > tt.burst {
					t.Errorf("%s: %d at once, want %d at most", name, n, tt.burst)
				}
				for k := range n {
					probe := verify(ref, addressOf(first+k).String())
					rounds = append(rounds, round{now, probe}, round{now.Add(time.Second), probe})
				}
			}
			var later []round
			for _, r := range rounds {
				if r.at.After(now) {
					later = append(later, r)
				} else if refusal := w.Probe(r.Probe, bpf.VLAN{}, r.at.Nanosecond()%2 == 0, now); refusal != (detector.ProbeRefusal{}) {
					t.Fatalf("%s: a round after %v was refused: %+v", name, now.Sub(start), refusal)
				}
			}
			rounds = later
		}
		if want := 10*tt.rate + float64(tt.burst); float64(admitted) < 9*tt.rate || float64(admitted) > want {
			t.Errorf("%s: %d admitted in 10 s, want %v to %v", name, admitted, 9*tt.rate, want)
		}
		sent := float64(w.Sent()[detector.Verify])
		if most := 10*tt.rate*2 + float64(tt.burst)*4/3; sent > most {
			t.Errorf("%s: %v probes sent, want %v at most", name, sent, most)
		}
	}
}

// Rounds that yield leave half of the limits, and checks get a quarter of the node's.
func TestReservedForChecks(t *testing.T) {
	w := newHarness()
	w.Budget = NewBudget(1000, 100)
	ref, next := w.pod(t, 2, nil), 0
	if n, _ := w.admit(ref, &next, 0, true, start); n != interfaceBurst/2 {
		t.Errorf("%d checks of one interface, want %d", n, interfaceBurst/2)
	}
	if n, _ := w.admit(w.pod(t, 3, nil), &next, 0, true, start); n != 250-interfaceBurst/2 {
		t.Errorf("%d checks besides, want 250 in all", n)
	}
	if n, _ := w.admit(w.pod(t, 4, nil), &next, 0, true, start.Add(time.Second/2)); n != 125 {
		t.Errorf("%d checks in half a second, want 125", n)
	}
	if n, _ := w.admit(ref, &next, time.Second, false, start); n == 0 {
		t.Error("no room for a suspicion after the checks")
	}
}

// What was set aside and not used is there no more after a while, and a holder with more addresses than a burst has is admitted, too.
func TestReservedEnds(t *testing.T) {
	w := newHarness()
	w.Budget = NewBudget(10, 10)
	ref := w.pod(t, 2, nil)
	probe := verify(ref, "10.2.0.1")
	if until, _ := w.Reserve([]detector.Probe{probe}, start.Add(time.Second), start, false); !until.IsZero() {
		t.Fatal("there is no room")
	}
	late := start.Add(time.Second + keptFor)
	for w.Budget.Allow(detector.Verify, false, late) { // all that there is
	}
	if r := w.Probe(probe, bpf.VLAN{}, false, late.Add(-time.Millisecond)); r != (detector.ProbeRefusal{}) {
		t.Errorf("refused in time: %+v", r)
	}
	if r := w.Probe(probe, bpf.VLAN{}, false, late); r == (detector.ProbeRefusal{}) {
		t.Error("sent too late")
	}
	many := make([]detector.Probe, 30)
	for i := range many {
		many[i] = verify(ref, addressOf(i).String())
	}
	if until, all := w.Reserve(many, late.Add(11*time.Second), late.Add(10*time.Second), false); !until.IsZero() {
		t.Errorf("30 holders never have room: until %v, all %v", until, all)
	}
}

// What is asked for again when there may be room for it gets room again and again, whatever the limit is and how many probes it needs.
func TestRoomForAll(t *testing.T) {
	for _, tt := range []struct{ perSecond, probes int }{{1, 1}, {1, 2}, {10, 1}, {15, 1}, {16, 1}, {15, 7}, {100, 7}, {1000, 63}, {1000, 64}, {1000, 1}} {
		for _, part := range []float64{keptPart, keptByYield} {
			b := newBucket(tt.perSecond, tt.perSecond)
			last, admitted := start, 0
			for now := start; now.Before(start.Add(5 * time.Minute)); {
				again := now.Add(time.Second)
				if until := b.fits(tt.probes, part, again, now); !until.IsZero() {
					now = until
					continue
				}
				b.set(tt.probes, again)
				admitted, last = admitted+1, now
			}
			if want := 300 * tt.perSecond / (2 * tt.probes) / 3; admitted < want || start.Add(5*time.Minute).Sub(last) > 20*time.Second {
				t.Errorf("%d a second, rounds of %d, %v kept: %d admitted in 5 min, the last after %v, want %d or more", tt.perSecond, tt.probes, part, admitted, last.Sub(start), want)
			}
		}
	}
}

// However many checks other nodes ask for, there is room for own ones a few seconds later.
func TestChecksAfterAsked(t *testing.T) {
	w := newHarness()
	w.Budget = NewBudget(1000, 100)
	var refs []detector.Interface
	for i := range 8 {
		refs = append(refs, w.pod(t, i+2, nil))
	}
	next, now, asked := 0, start, 0
	for range 60 {
		now = now.Add(time.Second)
		for _, ref := range refs {
			n, _ := w.admit(ref, &next, 0, false, now)
			asked += n
		}
	}
	if asked < 40_000 {
		t.Fatalf("%d were asked for", asked)
	}
	now = now.Add(5 * time.Second)
	if n, until := w.admit(refs[0], &next, 0, true, now); n == 0 {
		t.Errorf("no room for a check until %v later", until.Sub(now))
	}
}
