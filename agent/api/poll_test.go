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
		missing    string
		want       []string
		open       int
	}{
		"a new one":                            {nil, list(one("a", "suspected", "n1", "n2")), "", []string{"suspected a"}, 1},
		"confirmed":                            {list(one("a", "suspected", "n1", "n2")), list(one("a", "confirmed", "n1", "n2")), "", []string{"confirmed a"}, 1},
		"the same":                             {list(one("a", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n2", "n1")), "", nil, 1},
		"another holder":                       {list(one("a", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n1", "n2", "n3")), "", []string{"changed a"}, 1},
		"an earlier record of it":              {list(one("b", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n1", "n2")), "", nil, 1},
		"another one of the address":           {list(one("a", "confirmed", "n1", "n2")), list(one("a", "confirmed", "n1", "n2"), one("c", "suspected", "n3", "n4")), "", []string{"suspected c"}, 2},
		"ended":                                {list(one("a", "confirmed", "n1", "n2"), one("c", "suspected", "n3", "n4")), nil, "", []string{"resolved a", "faded c"}, 0},
		"ended, another node is silent":        {list(one("a", "confirmed", "n1", "n2")), nil, "n3", []string{"resolved a"}, 0},
		"ended, one of its nodes is silent":    {list(one("a", "confirmed", "n1", "n2")), nil, "n2", []string{"resolved a"}, 0},
		"ended, or its nodes are those silent": {list(one("a", "confirmed", "n1", "n1")), nil, "n1 (boot b)", nil, 1},
	} {
		events, open := compare(test.known, Conflicts{Conflicts: test.now, Coverage: Coverage{Partial: test.missing != "", Missing: []string{test.missing}}}, Query{}, time.Now())
		var got []string
		for _, event := range events {
			got = append(got, event.Type+" "+event.Conflict.ID)
		}
		if !slices.Equal(got, test.want) || len(open) != test.open {
			t.Errorf("%s: events %q, want %q; %d open, want %d", name, got, test.want, len(open), test.open)
		}
	}
}

// TestCompareSelected: a conflict that goes on without the pod that was asked for has changed, not ended.
func TestCompareSelected(t *testing.T) {
	holder := func(node, namespace string) Binding {
		return Binding{Node: node, NetnsCookie: 1, Pod: &Pod{Namespace: namespace, Name: "web"}}
	}
	before := Conflict{ID: "a", IP: "10.0.0.1", State: "confirmed", Holders: []Binding{holder("n1", "shop"), holder("n2", "a"), holder("n3", "b")}}
	after := before
	after.Holders = before.Holders[1:]
	q := Query{Namespace: "shop"}
	events, open := compare([]Conflict{before}, Conflicts{Conflicts: []Conflict{after}}, q, time.Now())
	if len(events) != 1 || events[0].Type != "changed" || len(open) != 1 {
		t.Errorf("%+v, %d open", events, len(open))
	}
	if events, _ := compare(open, Conflicts{}, q, time.Now()); len(events) != 0 {
		t.Errorf("%+v about pods that were not asked for", events)
	}

	unnamed := before
	unnamed.Holders = append([]Binding{{Node: "n1", NetnsCookie: 1}}, before.Holders[1:]...)
	if events, _ := compare([]Conflict{unnamed}, Conflicts{Conflicts: []Conflict{before}}, q, time.Now()); len(events) != 1 || events[0].Type != "confirmed" {
		t.Errorf("%+v when the name of the pod came", events)
	}
}

// TestDifference: a watch of bindings reports what somebody would see as another binding, and nothing of what was only read again.
func TestDifference(t *testing.T) {
	read := func(given bool, pod string) Binding { // as from a table that is read again: no pointer is the same
		return Binding{IP: "10.0.0.1", Node: "n1", NetnsCookie: 1, Given: &given, Pod: &Pod{Name: pod}, LastSeen: time.Now()}
	}
	known := make(map[bindingKey]Binding)
	for _, step := range []struct {
		bindings []Binding
		want     []string
	}{
		{[]Binding{read(true, "web")}, []string{"added"}},
		{[]Binding{read(true, "web")}, nil},
		{[]Binding{read(false, "web")}, []string{"changed"}},
		{[]Binding{read(false, "db")}, []string{"changed"}},
		{nil, []string{"removed"}},
	} {
		var got []string
		for _, event := range difference(known, step.bindings) {
			got = append(got, event.Type)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("events %q of %+v, want %q", got, step.bindings, step.want)
		}
	}
}

// TestCompareTimes: what was open before a watch began has the time when it was confirmed, as in the watch of one node.
func TestCompareTimes(t *testing.T) {
	now := time.Now()
	c := Conflict{ID: "a", IP: "10.0.0.1", State: "confirmed", SuspectedAt: now.Add(-2 * time.Hour), ConfirmedAt: now.Add(-time.Hour), Holders: []Binding{{Node: "n1"}}}
	events, open := compare(nil, Conflicts{Conflicts: []Conflict{c}}, Query{}, now)
	if len(events) != 1 || !events[0].At.Equal(c.ConfirmedAt) {
		t.Errorf("events %+v, want one at %v", events, c.ConfirmedAt)
	}
	if events, _ := compare(open, Conflicts{}, Query{}, now); len(events) != 1 || !events[0].At.Equal(now) {
		t.Errorf("events %+v, want the end at %v", events, now)
	}
}
