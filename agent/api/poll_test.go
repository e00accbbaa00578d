package api

import (
	"slices"
	"testing"
	"time"
)

// TestCompare: the events of a watch of the cluster are the differences of two answers.
func TestCompare(t *testing.T) {
	one := func(id, state string, nodes ...string) Conflict {
		c := Conflict{ID: id, Network: "default", IP: "10.0.0.1", State: state}
		for _, node := range nodes {
			c.Holders = append(c.Holders, Binding{Node: node, BootID: "b", NetnsCookie: 1})
		}
		return c
	}
	list := func(all ...Conflict) []Conflict { return all }
	for name, test := range map[string]struct {
		known, now []Conflict
		partial    bool
		want       []string
		open       int
	}{
		"a new one":                            {nil, list(one("a", "suspected", "n1", "n2")), false, []string{"suspected a"}, 1},
		"confirmed":                            {list(one("a", "suspected", "n1", "n2")), list(one("a", "confirmed", "n1", "n2")), false, []string{"confirmed a"}, 1},
		"the same":                             {list(one("a", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n2", "n1")), false, nil, 1},
		"another holder":                       {list(one("a", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n1", "n2", "n3")), false, []string{"changed a"}, 1},
		"an earlier record of it":              {list(one("b", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n1", "n2")), false, nil, 1},
		"another one of the address":           {list(one("a", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n1", "n2"), one("c", "suspected", "n3", "n4")), false, []string{"suspected c"}, 2},
		"ended":                                {list(one("a", "confirmed", "n1", "n2"), one("c", "suspected", "n3", "n4")), nil, false, []string{"resolved a", "faded c"}, 0},
		"ended, or its nodes are those silent": {list(one("a", "confirmed", "n1", "n2")), nil, true, nil, 1},
	} {
		events, open := compare(test.known, Conflicts{Conflicts: test.now, Coverage: Coverage{Partial: test.partial}}, time.Now())
		var got []string
		for _, event := range events {
			got = append(got, event.Type+" "+event.Conflict.ID)
		}
		if !slices.Equal(got, test.want) || len(open) != test.open {
			t.Errorf("%s: events %q, want %q; %d open, want %d", name, got, test.want, len(open), test.open)
		}
	}
}
