package detector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A conflict goes from state to state by what its holders have answered, and by the time for which fewer than two are left.
func TestConflictStates(t *testing.T) {
	for name, tt := range map[string]struct {
		second  Evidence
		answers [2][]float64 // of the two holders
		loses   float64      // when the second one is withdrawn
		until   float64
		want    string // its events, and the seconds when they come
	}{
		"one only forwards":              {Forwarded, [2][]float64{}, 9, 1, ""},
		"no answers yet":                 {Data, [2][]float64{}, 9, 0.5, "suspected 0"},
		"one round":                      {Data, [2][]float64{{0}, {0}}, 9, 0.5, "suspected 0"},
		"two rounds":                     {Data, [2][]float64{{0, 1}, {0, 1}}, 9, 1.5, "suspected 0, confirmed 1"},
		"two rounds, too soon":           {Data, [2][]float64{{0, 0.75}, {0, 0.75}}, 9, 0.75, "suspected 0"},
		"lost before it is confirmed":    {Data, [2][]float64{{0}, {0}}, 0.5, 2, "suspected 0, faded 0.5"},
		"lost, and just not over":        {Data, [2][]float64{{0, 1}, {0, 1}}, 2, 4.75, "suspected 0, confirmed 1"},
		"lost for 3 s":                   {Data, [2][]float64{{0, 1}, {0, 1}}, 2, 5, "suspected 0, confirmed 1, resolved 5"},
		"only the first one answers":     {Data, [2][]float64{{0, 1}, nil}, 9, 2, "suspected 0"},
		"each one in a round of its own": {Data, [2][]float64{{0, 1}, {1.25, 2.5}}, 9, 3, "suspected 0"},
	} {
		table := newTable(Options{})
		v := &verifier{overlap: time.Second}
		all := &conflicts{table: table, verifier: v, open: make(map[*entry]struct{}), history: history{shares: make(map[kind]*share)}, counts: newCounts()}
		a, b := table.see("n1", 1, 1, 1, Data, 0), table.see("n1", 2, 2, 1, tt.second, 0)
		e := a.entry
		for at := 0.0; at <= tt.until; at += 0.25 {
			if at == tt.loses {
				table.remove(b, noteGone, "gone", clock(at))
			}
			all.advance(e, clock(at)) // a suspicion asks them
			for i, x := range []*binding{a, b} {
				if x.check != nil && slices.Contains(tt.answers[i], at) {
					x.check.answered(clock(at), false)
					x.pair()
				}
			}
			all.advance(e, clock(at))
			e.ceased = nil
		}
		var events []string
		for _, ev := range all.events {
			events = append(events, fmt.Sprintf("%s %v", ev.Kind, ev.At.Sub(clock(0)).Seconds()))
		}
		if got := strings.Join(events, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		ended := strings.Contains(tt.want, "faded") || strings.Contains(tt.want, "resolved")
		if (e.conflict != nil) != (tt.want != "" && !ended) || len(all.open) != 0 == (e.conflict == nil) || e.occurrences != strings.Count(tt.want, "resolved") {
			t.Errorf("%s: open %v, %d in the list, %d resolved", name, e.conflict != nil, len(all.open), e.occurrences)
		}
	}
}
