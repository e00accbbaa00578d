package detector

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The occurrences continue those of the previous agent, and the history stays within its limit.
func TestRestoredHistory(t *testing.T) {
	w := newWorld(t, Options{MaxHistory: 3})
	for i := range 5 {
		w.do(fmt.Sprintf("0s a%d announces", i))
		w.do(fmt.Sprintf("0s b%d announces", i))
		w.run(w.now.Add(2 * time.Second))
		w.do(fmt.Sprintf("0s a%d gone", i))
		w.do(fmt.Sprintf("0s b%d gone", i))
		w.run(w.now.Add(10 * time.Second))
	}
	left := w.d.Conflicts(true)
	w.do("0s agent restarts")
	w.mustAudit()
	if diff := cmp.Diff(left, w.d.Conflicts(true), cmpIPs); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if s := w.d.Explain(defaultIP); len(s) != 1 || s[0].Conflict == nil || s[0].Conflict.ID != "819cfe21-5" {
		t.Errorf("story %+v", s)
	}
	w.do("0s c announces")
	w.do("0s d announces")
	if got := w.d.Conflicts(false)[0].ID; got != "819cfe21-6" {
		t.Errorf("the next id is %s", got)
	}
	small := New(Options{Node: "n1", MaxHistory: 2})
	if _, dropped := small.Restore(w.d.Snapshot(), w.now); dropped != 0 {
		t.Errorf("%d dropped", dropped)
	}
	if got := small.Snapshot().History; len(got) != 2 || got[1].ID != "819cfe21-5" {
		t.Errorf("kept %+v", got)
	}
}

// A restored holder without a netns is never identified with a holder of the present agent.
func TestRestoredUnseenNetnsIsNotKnownAgain(t *testing.T) {
	w := newWorld(t, Options{})
	for _, name := range []string{"a", "b"} {
		a := w.actor(name)
		a.id = HolderID{Node: "n1", Ifindex: a.iface.Ifindex, Generation: a.iface.Generation}
	}
	w.play(`0s a announces
		0s b announces`, 2*time.Second)
	left := w.d.Snapshot()
	for range 2 { // the mark stays
		w.d, w.born = New(w.d.table.opts), w.now
		w.d.Restore(left, w.now)
		left = w.d.Snapshot()
	}
	w.do("0s a announces")
	if n := len(w.d.Conflicts(false)[0].Holders); n != 3 {
		t.Errorf("%d holders, want the two restored ones and a new one", n)
	}
	w.mustAudit()
}

// Invalid conflicts are dropped or corrected.
func TestRestoreRefusesNonsense(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		5s b gone
		20s c announces`, 5*time.Second)
	good := w.d.Snapshot()
	if len(good.Open) != 1 || len(good.History) != 1 {
		t.Fatalf("%+v", good)
	}
	now := w.now.Add(time.Minute)
	twoThousand := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name    string
		spoil   func(c *Conflict)
		dropped bool
	}{
		{"nothing", func(*Conflict) {}, false},
		{"another address", func(c *Conflict) { c.Key.IP = ipv4(77) }, true},
		{"no holders", func(c *Conflict) { c.Holders = nil }, true},
		{"one holder", func(c *Conflict) { c.Holders = c.Holders[:1] }, true},
		{"one holder twice", func(c *Conflict) { c.Holders[1].Holder.ID = c.Holders[0].Holder.ID }, true},
		{"no id", func(c *Conflict) { c.ID = "" }, true},
		{"an id without occurrence", func(c *Conflict) { c.ID = "819cfe21" }, true},
		{"occurrence 0", func(c *Conflict) { c.ID = "819cfe21-0" }, true},
		{"occurrence -1", func(c *Conflict) { c.ID = "819cfe21--1" }, true},
		{"occurrence +1", func(c *Conflict) { c.ID = "819cfe21-+1" }, true},
		{"a huge occurrence", func(c *Conflict) { c.ID = fmt.Sprint("819cfe21-", uint64(math.MaxUint64)) }, true},
		{"id of another", func(c *Conflict) { c.ID = "00000000-1" }, true},
		{"suspected after now", func(c *Conflict) { c.SuspectedAt = now.Add(time.Hour) }, false},
		{"confirmed before the suspicion", func(c *Conflict) { c.ConfirmedAt = twoThousand }, false},
		{"confirmed after now", func(c *Conflict) { c.ConfirmedAt = now.AddDate(1000, 0, 0) }, false},
		{"seen after now", func(c *Conflict) {
			c.SecondSeen, c.Holders[0].FirstSeen, c.Holders[0].LastSeen = now.Add(1), now.Add(1), now.Add(2)
		}, false},
		{"the last before the first time", func(c *Conflict) { c.Holders[0].LastSeen = twoThousand }, false},
	}
	for _, tt := range tests {
		for _, part := range []string{"open", "history"} {
			t.Run(tt.name+"/"+part, func(t *testing.T) {
				c := good.Open[0].clone()
				if part == "history" {
					c = good.History[0].clone()
				}
				tt.spoil(&c)
				s := Snapshot{Open: []Conflict{c}}
				if part == "history" {
					s = Snapshot{History: []Conflict{c}}
				}
				w := newWorld(t, Options{})
				w.now = now
				fx, dropped := w.d.Restore(s, now)
				if (dropped == 1) != tt.dropped || dropped > 1 {
					t.Errorf("%d dropped", dropped)
				}
				w.apply(fx)
				w.mustAudit()
				for _, c := range slices.Concat(w.d.Conflicts(true), w.d.Snapshot().Open) {
					times := []time.Time{c.SecondSeen, c.SuspectedAt}
					for _, at := range []time.Time{c.ConfirmedAt, c.ResolvedAt} {
						if !at.IsZero() {
							times = append(times, at)
						}
					}
					times = append(times, now)
					if !slices.IsSortedFunc(times, time.Time.Compare) {
						t.Errorf("times %v", times)
					}
					for _, h := range c.Holders {
						if h.FirstSeen.Before(twoThousand) || h.FirstSeen.After(h.LastSeen) || h.LastSeen.After(now) {
							t.Errorf("holder %+v", h)
						}
					}
				}
				w.run(now.Add(time.Minute))
				w.mustAudit()
				if n := len(w.d.Conflicts(false)); n != 0 {
					t.Errorf("%d open", n)
				}
			})
		}
	}
}

// A conflict that a snapshot has twice, or both open and resolved, is restored once.
func TestRestoreDropsRepeats(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		5s b gone
		20s c announces`, 5*time.Second)
	s := w.d.Snapshot()
	again := s.History[0].clone()
	again.State, again.ResolvedAt = Confirmed, time.Time{}
	s.Open = []Conflict{again, s.Open[0], s.Open[0], s.History[0]}
	s.History = append(s.History, s.History[0], s.Open[1])
	d := New(Options{Node: "n1"})
	_, dropped := d.Restore(s, w.now)
	if dropped != 5 {
		t.Errorf("%d dropped", dropped)
	}
	if got := d.Snapshot(); len(got.Open) != 1 || got.Open[0].ID != "819cfe21-2" || len(got.History) != 1 {
		t.Errorf("%+v", got)
	}
	if err := audit(d); err != nil {
		t.Error(err)
	}
}

func TestOpenConflictsRestoredAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces`, 2*time.Second)
	var s Snapshot
	for i := range maxRestored + 5 {
		c := w.d.Snapshot().Open[0]
		c.Key.IP = ipv4(i)
		c.ID = conflictID(c.Key, 1)
		s.Open = append(s.Open, c)
	}
	d := New(Options{Node: "n1"})
	if _, dropped := d.Restore(s, w.now); dropped != 5 || len(d.conflicts.open) != maxRestored {
		t.Errorf("%d dropped, %d open", dropped, len(d.conflicts.open))
	}
}

// A restored conflict is resolved at once if its address is declared shared by now.
func TestRestoreOfWhatIsShared(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces`, 2*time.Second)
	left := w.d.Snapshot()
	w.d = New(Options{Node: "n1"})
	w.do("0s agent shares")
	fx, dropped := w.d.Restore(left, w.now)
	if len(fx.Events) != 1 || fx.Events[0].Kind != EventResolved || fx.Events[0].Reason != "declared shared" || dropped != 0 {
		t.Errorf("%d dropped, events %+v", dropped, fx.Events)
	}
	w.mustAudit()
}

// The name of a restored holder does not replace a name that was found after the restart.
func TestDescribeRestored(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces`, 2*time.Second)
	name := func(pod string) {
		w.d.Describe(w.actor("a").id, func(_ Key, h *Holder) { h.ID, h.Pod.Name = HolderID{}, pod }, w.now)
	}
	name("old")
	w.do("0s agent restarts")
	name("new")
	if got := w.d.Conflicts(false)[0].Holders[0].Holder.Pod.Name; got != "new" {
		t.Errorf("the holder that is awaited is %q", got)
	}
	w.do("0s a announces")
	if got := w.d.Bindings(nil)[0].Holder.Pod.Name; got != "new" {
		t.Errorf("the holder is %q", got)
	}
	w.mustAudit()
}

// Restore after the first sightings is not allowed. The invariants still hold.
func TestRestoreLate(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces`, 2*time.Second)
	left := w.d.Snapshot()
	w.d = New(Options{Node: "n1"})
	w.do("0s a announces")
	w.do("0s b announces")
	w.do("0s a announces 10.0.0.2")
	if _, dropped := w.d.Restore(left, w.now); dropped != 1 {
		t.Errorf("%d dropped", dropped)
	}
	w.mustAudit()
	w.d = New(Options{Node: "n1"})
	w.do("0s a announces")
	w.d.Restore(left, w.now)
	w.do("0s b announces")
	w.run(w.now.Add(2 * time.Second))
	w.mustAudit()
	if c := w.d.Conflicts(false); len(c) != 1 || c[0].State != Confirmed {
		t.Errorf("%+v", c)
	}
}

// Changes of a snapshot by the caller do not change the detector.
func TestSnapshotIsACopy(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		5s b gone
		20s c announces`, 5*time.Second)
	spoil := func(s Snapshot) {
		s.Open[0].Holders[0].Holder.NetnsName = "changed"
		s.History[0].Holders[0].Holder.NetnsName = "changed"
	}
	spoil(w.d.Snapshot())
	s := w.d.Snapshot()
	d := New(Options{Node: "n1"})
	d.Restore(s, w.now)
	spoil(s)
	for _, s := range []Snapshot{w.d.Snapshot(), d.Snapshot()} {
		if got := s.Open[0].Holders[0].Holder.NetnsName + s.History[0].Holders[0].Holder.NetnsName; got != "aa" {
			t.Errorf("changed: %q", got)
		}
	}
}
