package probe

import (
	"testing"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// An answer says by the source of its probe which one it is for. One that comes too late is an announcement; an answer to somebody else
// is never late.
func TestLate(t *testing.T) {
	const ip, others, unknown = "10.0.0.1", -1, -2
	ms := func(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }
	for _, tt := range []struct {
		name     string
		probes   []int // when, in ms
		to, at   int   // the probe that is answered, and when
		want     time.Duration
		none     bool // it is no answer, and not late
		evidence detector.Evidence
	}{
		{name: "at once", probes: []int{0}, at: 1},
		{name: "to the third", probes: []int{0, 100, 300}, to: 2, at: 1200},
		{name: "to the first, in time", probes: []int{0, 100, 300}, at: 1000},
		{name: "to the first, too late", probes: []int{0, 100, 300}, at: 1100, want: 1100 * time.Millisecond},
		{name: "to the first, when the next round has begun", probes: []int{0, 100, 300, 1500}, at: 1600, want: 1600 * time.Millisecond},
		{name: "prompt, to the next round", probes: []int{0, 100, 300, 1500}, to: 3, at: 1600},
		{name: "much too late", probes: []int{0, 20000, 40000}, at: 40001, none: true},
		{name: "to a former agent, or made up", probes: []int{0}, to: unknown, at: 1, none: true},
		{name: "to others", probes: []int{0}, to: others, at: 3500},
		{name: "what its kernel has", probes: []int{0, 100, 300}, to: others, at: 1600, evidence: detector.Configured},
	} {
		w := newHarness()
		ref := w.pod(t, 7, nil, ip)
		w.targets = nil
		for _, at := range tt.probes {
			if r := w.Probe(verify(ref, ip), bpf.VLAN{}, false, ms(at)); r != (detector.ProbeRefusal{}) {
				t.Fatalf("%s: %+v", tt.name, r)
			}
		}
		s := announced(ip, ms(tt.at))
		if s.Answer = true; tt.evidence != 0 {
			s.Evidence = tt.evidence
		}
		to := [6]byte{2, 9, 9, 9, 9, 9}
		switch {
		case tt.to >= 0:
			to = w.targets[tt.to].Source
		case tt.to == unknown:
			to = [6]byte{source[0], source[1], source[2], 9, 9, 9}
			if _, drawn := w.asked.all[to]; drawn {
				continue
			}
		}
		w.Observed(ref, bpf.VLAN{}, s, to)
		if s.Answer != (tt.want == 0 && !tt.none) || s.Late != tt.want || s.Overheard != (tt.to == others && tt.evidence == 0) {
			t.Errorf("%s: answer %v, late %v; want %v", tt.name, s.Answer, s.Late, tt.want)
		}
	}
}

// TestAsked: probes are remembered for some seconds, with their holder, and are bounded.
func TestAsked(t *testing.T) {
	w := newHarness()
	w.Budget = NewBudget(10*maxAsked, 1)
	now, holder := start, detector.HolderID{Node: "n/", Netns: 2}
	w.pod(t, 2, nil)
	for range 3 * maxAsked {
		w.asked.source(holder, now)
	}
	if len(w.asked.all) != maxAsked || len(w.asked.order) != maxAsked {
		t.Errorf("%d and %d probes are remembered, want %d", len(w.asked.all), len(w.asked.order), maxAsked)
	}
	first := w.asked.source(holder, now.Add(askedFor))
	if id, sent, ours := w.Asked(first); id != holder || !sent.Equal(now.Add(askedFor)) || !ours {
		t.Errorf("%v at %v, ours %v", id, sent, ours)
	}
	second := w.asked.source(holder, now.Add(askedFor+time.Second))
	if len(w.asked.all) != 2 || len(w.asked.order) != 2 || first == second || [3]byte(second[:3]) != source {
		t.Errorf("later: %d probes, sources %x and %x", len(w.asked.all), first, second)
	}
	if _, sent, ours := w.Asked([6]byte{2, 9}); !sent.IsZero() || ours {
		t.Error("another's MAC is ours")
	}
}
