package detector

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (w *world) probedAt(name string, p Purpose) []time.Duration {
	var list []time.Duration
	for _, a := range w.probed {
		if a.s.Holder == w.actor(name).id && a.s.Purpose == p {
			list = append(list, a.at)
		}
	}
	return list
}

func near(got, want, within time.Duration) bool { return (got - want).Abs() <= within }

// A silent binding is probed after half and three quarters of the TTL, and ends after the TTL.
func TestSilentBindingIsRefreshedThenExpires(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s a mute
		0s a forwards 10.0.0.2`, 4*time.Minute+59*time.Second)
	probed := w.probedAt("a", Refresh)
	if len(probed) != 2 || !near(probed[0], 150*time.Second, 15*time.Second) || !near(probed[1], 225*time.Second, 15*time.Second) {
		t.Fatalf("refreshed at %v", probed)
	}
	if n := len(w.d.Bindings(nil)); n != 2 {
		t.Fatalf("%d bindings before the TTL", n)
	}
	w.run(w.start.Add(5 * time.Minute))
	if n := len(w.d.Bindings(nil)); n != 0 || !w.d.Next().IsZero() {
		t.Fatalf("%d bindings after the TTL, next %v", n, w.d.Next())
	}
	w.mustAudit()
	if v := w.verdict(); v != "no live holder: not a conflict" {
		t.Errorf("verdict %q", v)
	}
	// The address was only forwarded, so it has no story.
	if n := len(w.d.Explain(ipv4(2))); n != 0 {
		t.Errorf("%d stories of a forwarded address", n)
	}
}

func TestAnswerKeepsABindingAlive(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces`, time.Hour)
	if n := len(w.d.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings", n)
	}
	probed := w.probedAt("a", Refresh)
	if n := len(probed); n < 21 || n > 28 {
		t.Errorf("refreshed %d times in an hour", n)
	}
	var texts []string
	for _, n := range w.d.Explain(defaultIP)[0].Notes {
		texts = append(texts, n.Text)
	}
	want := []string{
		"first seen: announced on veth1",
		fmt.Sprintf("probed because it was silent (%d times)", len(probed)),
		fmt.Sprintf("answered after a silence (%d times)", len(probed)),
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestRefreshIsPostponed(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s a guarded 200s because`, 4*time.Minute)
	probed := w.probedAt("a", Refresh)
	if len(probed) != 2 || probed[1] != 200*time.Second {
		t.Errorf("refreshed at %v", probed)
	}
	if n := len(w.d.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings", n)
	}
}

// New evidence ends the postponement of a probe.
func TestPostponementEndsWithNewEvidence(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s a mute`, 170*time.Second)
	w.d.Probed(Probe{Key: Key{"default", defaultIP}, Holder: w.actor("a").id, Purpose: Refresh}, Result{Refused, "x", w.now.Add(time.Hour)}, w.now)
	w.do("0s a announces")
	seen := w.since(w.now)
	w.run(w.now.Add(170 * time.Second))
	probed := w.probedAt("a", Refresh)
	if last := probed[len(probed)-1]; !near(last-seen, 150*time.Second, 15*time.Second) {
		t.Errorf("refreshed at %v", probed)
	}
}

// Evidence becomes weaker when stronger evidence is not seen for the TTL.
func TestEvidenceLapses(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	w.do("0s a mute")
	for range 10 {
		w.run(w.now.Add(time.Minute))
		w.do("0s a sends")
	}
	w.run(w.now.Add(time.Minute))
	got := w.d.Bindings(nil)
	if len(got) != 1 || got[0].Evidence != Data {
		t.Fatalf("bindings %+v", got)
	}
	if n := w.d.Counts().Bindings; n[Data] != 1 || n[Announced] != 0 {
		t.Errorf("counts %v", n)
	}
	w.do("0s a forwards")
	w.run(w.now.Add(4 * time.Minute))
	if got := w.d.Bindings(nil); len(got) != 1 || got[0].Evidence != Forwarded {
		t.Fatalf("bindings %+v", got)
	}
}

// The probes of ten thousand bindings that were seen at the same time are spread over time.
func TestRefreshIsSpread(t *testing.T) {
	w := newWorld(t, Options{})
	const n = 10_000
	for i := range n {
		id := HolderID{Node: "n1", Netns: uint64(i + 1)}
		iface := Interface{uint32(i + 1), 1}
		w.d.Observe(Sighting{
			Key: Key{"default", ipv4(i)}, Holder: Holder{ID: id, Interface: iface}, Evidence: Announced, At: w.now,
		}, w.now)
	}
	var seconds [40]int
	first := w.start.Add(130 * time.Second)
	for now := first; now.Before(first.Add(40 * time.Second)); now = now.Add(time.Second) {
		for _, s := range w.d.Tick(now).Probes {
			if s.Purpose != Refresh {
				t.Fatalf("%+v", s)
			}
			seconds[now.Sub(first)/time.Second]++
		}
	}
	total := 0
	for i, got := range seconds {
		total += got
		if got > n/30*3/2 {
			t.Errorf("%d within second %d", got, i)
		}
	}
	if total != n {
		t.Errorf("%d refreshed", total)
	}
}

// Addresses that were seen at different times are probed together, once a second at most: each
// time that an agent wakes costs more than a probe.
func TestRefreshesGoTogether(t *testing.T) {
	w := newWorld(t, Options{})
	const n = 500
	at := w.start
	for i := range n {
		at = at.Add(17 * time.Millisecond)
		id := HolderID{Node: "n1", Netns: uint64(i + 1)}
		w.d.Observe(Sighting{
			Key: Key{"default", ipv4(i)}, Holder: Holder{ID: id, Interface: Interface{uint32(i + 1), 1}}, Evidence: Announced, At: at,
		}, at)
	}
	probed, wakes := 0, 0
	var last time.Time
	for probed < n {
		next := w.d.Next()
		if next.IsZero() || next.After(w.start.Add(200*time.Second)) {
			t.Fatalf("%d of %d are probed, the next at %v", probed, n, next)
		}
		if apart := next.Sub(last); apart < time.Second {
			t.Fatalf("two wakes are %v apart", apart)
		}
		last = next
		probed += len(w.d.Tick(next).Probes)
		wakes++
	}
	if wakes > 41 { // 8.5 s of sightings, and twice 15 s of spreading
		t.Errorf("%d wakes for %d questions", wakes, n)
	}
}

// What a holder announced while it was suppressed counts when that ends, whatever else becomes of the address at that moment.
func TestSuppressionEndsBesideARefresh(t *testing.T) {
	for _, result := range []Result{{Outcome: Sent}, {Outcome: Refused, Reason: "a guard"}, {Outcome: Unanswered}} {
		d, list, now := filled(2)
		a, b := list[0], list[1]
		b.Key = a.Key
		a.Evidence, b.Evidence = Announced, Announced
		d.Observe(a, now)
		d.table.entries[a.Key].penalties.add(b.Holder.ID, true, now)
		b.At = now.Add(time.Second / 2)
		d.Observe(b, b.At)
		if n := d.Counts().Suspected; n != 0 {
			t.Fatalf("%d suspicions of a suppressed holder", n)
		}
		late := now.Add(time.Second + time.Millisecond)
		d.Probed(Probe{Key: a.Key, Holder: a.Holder.ID, Purpose: Refresh}, result, late)
		if d.Tick(late); d.Counts().Suspected != 1 {
			t.Errorf("outcome %v: %d suspicions, next at %v", result.Outcome, d.Counts().Suspected, d.Next().Sub(now))
		}
	}
}
