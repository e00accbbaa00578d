package merge

import (
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// The gravest conflict comes first: confirmed before suspected, then of a node's own address, with more holders, for longer. A drill
// comes last.
func TestGravestFirst(t *testing.T) {
	now := time.Now()
	one := func(id string, state detector.State, scope detector.Scope, holders int, age time.Duration) document.Conflict {
		return document.Conflict{ID: id, State: state, Scope: scope, Holders: make([]document.Binding, holders), SuspectedAt: now.Add(-age)}
	}
	drill := one("drill", detector.Confirmed, detector.CrossNode, 9, 2*time.Hour)
	drill.Drill = true
	want := []document.Conflict{
		one("a node's", detector.Confirmed, detector.PodHost, 2, time.Second),
		one("three", detector.Confirmed, detector.SameNode, 3, time.Second),
		one("long", detector.Confirmed, detector.CrossNode, 2, time.Hour),
		one("short", detector.Confirmed, detector.SameNode, 2, time.Second),
		one("suspected, a node's", detector.Suspected, detector.PodHost, 9, time.Hour),
		one("suspected", detector.Suspected, detector.SameNode, 2, time.Hour),
		drill,
	}
	for i, a := range want {
		for j, b := range want {
			if got := compareConflicts(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", a.ID, b.ID, got)
			}
		}
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareConflicts)
	if got[0].ID != "a node's" || got[5].ID != "suspected" || got[6].ID != "drill" {
		t.Errorf("%+v", got)
	}
}
