package detector

import (
	"fmt"
	"slices"
	"testing"
)

// log returns a line for each event.
func (w *world) log() (list []string) {
	for _, ev := range w.events {
		line := fmt.Sprintf("%s %s", w.since(ev.At), ev.Kind)
		for _, h := range ev.Conflict.Holders {
			line += " " + h.Holder.NetnsName
		}
		list = append(list, line)
	}
	return list
}

// check fails the test if an event breaks a rule that holds for all events.
func (w *world) check(ev Event) {
	w.t.Helper()
	c := ev.Conflict
	if ev.Reason == "" {
		w.t.Errorf("%s without a reason", ev.Kind)
	}
	if !ev.At.Equal(w.now) {
		w.t.Errorf("%s at %v, not now", ev.Kind, ev.At)
	}
	if len(c.Holders) < 2 {
		w.t.Errorf("%s with %d holders", ev.Kind, len(c.Holders))
	}
	if c.SecondSeen.IsZero() || c.SecondSeen.After(c.SuspectedAt) {
		w.t.Errorf("%s: second seen %v, suspected %v", ev.Kind, c.SecondSeen, c.SuspectedAt)
	}
	local := slices.ContainsFunc(c.Holders, func(b Binding) bool { return b.Holder.ID.Node == w.d.table.opts.Node })
	if ev.Kind == EventConfirmed && !local {
		w.t.Errorf("confirmed without a holder here: %+v", c)
	}
	if w.proof != nil && ev.Kind == EventConfirmed {
		if err := w.proof.judge(c, w.born, w.d.table.opts.MinOverlap); err != nil {
			w.t.Error(err)
		}
	}
	w.checkLost(ev)
	if (c.State == Suspected) != c.ConfirmedAt.IsZero() || (c.State == Resolved) != !c.ResolvedAt.IsZero() {
		w.t.Errorf("%s: state %s with times %v %v", ev.Kind, c.State, c.ConfirmedAt, c.ResolvedAt)
	}
}

// checkLost fails the test if an event does not name the holders that left the conflict with it.
func (w *world) checkLost(ev Event) {
	w.t.Helper()
	has := func(list []Binding, id HolderID) bool {
		return slices.ContainsFunc(list, func(b Binding) bool { return b.Holder.ID == id })
	}
	for _, before := range slices.Backward(w.events[:len(w.events)-1]) {
		if before.Conflict.ID != ev.Conflict.ID || before.At.Before(w.born) {
			continue
		}
		lost := slices.Clone(ev.Lost)
		for _, b := range before.Conflict.Holders {
			if ev.Kind == EventChanged && !has(ev.Conflict.Holders, b.Holder.ID) && !has(lost, b.Holder.ID) {
				w.t.Errorf("%s: %s is lost, and not named", ev.Kind, b.Holder)
			}
			lost = slices.DeleteFunc(lost, func(l Binding) bool { return l.Holder.ID == b.Holder.ID })
		}
		if len(lost) > 0 {
			w.t.Errorf("%s: lost %+v, which were not in the conflict", ev.Kind, lost)
		}
		break
	}
	for _, b := range ev.Lost {
		if ev.Kind != EventChanged || has(ev.Conflict.Holders, b.Holder.ID) || b.Holder.ID == (HolderID{}) {
			w.t.Errorf("%s: lost %+v", ev.Kind, b)
		}
	}
}

func (w *world) verdict() string {
	w.t.Helper()
	stories := w.d.Explain(defaultIP)
	if len(stories) != 1 {
		w.t.Fatalf("%d stories", len(stories))
	}
	return stories[0].Verdict
}

// history logs the events and notes, so that a failed test can be understood.
func (w *world) history(t *testing.T) {
	t.Helper()
	for _, line := range w.log() {
		t.Log(line)
	}
	for e := range w.d.table.entries {
		for _, s := range w.d.Explain(e.IP) {
			t.Log(s.Key, s.Verdict)
			for _, n := range s.Notes {
				t.Logf("%s %v %s: %s", w.since(n.At), n.Kind, w.name(n.Holder.ID), n.Text)
			}
		}
	}
}

func (w *world) name(id HolderID) string {
	for _, a := range w.holders {
		if a.id == id {
			return a.name
		}
	}
	return ""
}
