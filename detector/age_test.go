package detector

import (
	"net/netip"
	"testing"
	"time"
)

// FoundAtStart describes the FirstSeen of local and remote holders.
func TestFoundAtStart(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	key := Key{"default", netip.MustParseAddr("10.0.0.1")}
	near, far := HolderID{Node: "n1", Netns: 1}, HolderID{Node: "n2", Netns: 2}
	see := func(d *Detector, id HolderID, now time.Time, answer, found bool, first time.Time) {
		d.Observe(Sighting{
			Key: key, Holder: Holder{ID: id, Interface: Interface{1, 1}}, Evidence: Announced, Answer: answer,
			At: now, FirstSeen: first, FoundAtStart: found,
		}, now)
	}
	get := func(d *Detector, id HolderID) Binding {
		t.Helper()
		for _, b := range d.Bindings(nil) {
			if b.Holder.ID == id {
				return b
			}
		}
		t.Fatalf("no holder %v", id)
		return Binding{}
	}
	d := New(Options{Node: "n1"})
	see(d, near, at(0), false, true, time.Time{})
	see(d, near, at(time.Second), false, false, time.Time{})
	if !get(d, near).FoundAtStart {
		t.Error("a later sighting changed how the first was made")
	}
	// A keeper does not know FoundAtStart. The holder's node does.
	see(d, far, at(2*time.Second), false, false, at(time.Second))
	see(d, far, at(2*time.Second), true, true, at(time.Second))
	if b := get(d, far); !b.FoundAtStart || !b.FirstSeen.Equal(at(time.Second)) {
		t.Errorf("%+v, want what its node answers", b)
	}
	// A lease does not have FoundAtStart, also when it is refreshed.
	see(d, far, at(2500*time.Millisecond), false, false, at(time.Second))
	if !get(d, far).FoundAtStart {
		t.Error("a lease changed what the holder's node answered")
	}
	see(d, far, at(3*time.Second), true, false, at(1200*time.Millisecond))
	if get(d, far).FoundAtStart {
		t.Error("the last answer of its node does not count")
	}
	// An agent that lost its state reports a later time; the earlier one is kept.
	see(d, far, at(time.Minute), true, true, at(50*time.Second))
	if b := get(d, far); b.FoundAtStart || !b.FirstSeen.Equal(at(time.Second)) {
		t.Errorf("%+v, want what was known before", b)
	}

	// The same holds after a restart of this agent.
	snapshot := d.Snapshot()
	if len(snapshot.Open) != 1 {
		t.Fatalf("snapshot %+v", snapshot)
	}
	again := New(Options{Node: "n1"})
	again.Restore(snapshot, at(2*time.Minute))
	see(again, near, at(2*time.Minute), false, true, time.Time{})
	see(again, far, at(2*time.Minute), true, true, at(110*time.Second))
	if b := get(again, near); !b.FoundAtStart || !b.FirstSeen.Equal(at(0)) {
		t.Errorf("restored %+v", b)
	}
	if b := get(again, far); b.FoundAtStart || !b.FirstSeen.Equal(at(time.Second)) {
		t.Errorf("restored %+v, want it as before the restart", b)
	}
}

// The age of the sandbox belongs to the pod's name.
func TestCreatedAt(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	made := now.Add(-time.Hour)
	id := HolderID{Node: "n1", Netns: 1}
	key := func(ip string) Key { return Key{"default", netip.MustParseAddr(ip)} }
	see := func(d *Detector, ip string, h Holder) {
		h.ID, h.Interface = id, Interface{1, 1}
		d.Observe(Sighting{Key: key(ip), Holder: h, Evidence: Announced, At: now}, now)
	}
	d := New(Options{Node: "n1"})
	see(d, "10.0.0.1", Holder{Pod: Pod{Name: "web"}, CreatedAt: made})
	see(d, "10.0.0.1", Holder{})
	see(d, "10.0.0.2", Holder{})
	for _, b := range d.Bindings(nil) {
		if !b.Holder.CreatedAt.Equal(made) {
			t.Errorf("%v: created at %v", b.Key.IP, b.Holder.CreatedAt)
		}
	}
	see(d, "10.0.0.2", Holder{Pod: Pod{Name: "other"}})
	if b := d.Bindings(nil)[1]; !b.Holder.CreatedAt.IsZero() {
		t.Errorf("another pod has the age of the first: %+v", b)
	}

	// An invalid age is not restored.
	c := Conflict{
		ID: conflictID(key("10.0.0.1"), 1), Key: key("10.0.0.1"), State: Resolved, SecondSeen: made, SuspectedAt: made, ConfirmedAt: made, ResolvedAt: made,
		Holders: []Binding{
			{Holder: Holder{ID: id, CreatedAt: now.Add(time.Hour)}, Evidence: Announced, FirstSeen: made},
			{Holder: Holder{ID: HolderID{Node: "n2", Netns: 1}, CreatedAt: made}, Evidence: Announced, FirstSeen: made},
		},
	}
	again := New(Options{Node: "n1"})
	if _, dropped := again.Restore(Snapshot{History: []Conflict{c}}, now); dropped != 0 {
		t.Fatal("the conflict is not restored")
	}
	if h := again.Conflicts(true)[0].Holders; !h[0].Holder.CreatedAt.IsZero() || !h[1].Holder.CreatedAt.Equal(made) {
		t.Errorf("holders %+v", h)
	}
}
