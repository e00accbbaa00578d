package api

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"

	"github.com/dupip/dupip/document"
)

// TestCompare: the events of a watch of the cluster are the differences of two answers.
func TestCompare(t *testing.T) {
	one := func(id string, state detector.State, nodes ...string) document.Conflict {
		c := document.Conflict{ID: id, Network: "default", IP: netip.MustParseAddr("10.0.0.1"), State: state}
		for _, node := range nodes {
			c.Holders = append(c.Holders, document.Binding{Holder: document.Holder{Node: node, BootID: "b", NetnsCookie: 1}})
		}
		return c
	}
	list := func(all ...document.Conflict) []document.Conflict { return all }
	for name, test := range map[string]struct {
		known, now []document.Conflict
		missing    string
		want       []string
		open       int
	}{
		"a new one":                            {nil, list(one("a", detector.Suspected, "n1", "n2")), "", []string{"suspected a"}, 1},
		"confirmed":                            {list(one("a", detector.Suspected, "n1", "n2")), list(one("a", detector.Confirmed, "n1", "n2")), "", []string{"confirmed a"}, 1},
		"the same":                             {list(one("a", detector.Confirmed, "n1", "n2")), list(one("a", detector.Confirmed, "n2", "n1")), "", nil, 1},
		"another holder":                       {list(one("a", detector.Confirmed, "n1", "n2")), list(one("a", detector.Confirmed, "n1", "n2", "n3")), "", []string{"changed a"}, 1},
		"an earlier record of it":              {list(one("b", detector.Confirmed, "n1", "n2")), list(one("a", detector.Confirmed, "n1", "n2")), "", nil, 1},
		"another one of the address":           {list(one("a", detector.Confirmed, "n1", "n2")), list(one("a", detector.Confirmed, "n1", "n2"), one("c", detector.Suspected, "n3", "n4")), "", []string{"suspected c"}, 2},
		"ended":                                {list(one("a", detector.Confirmed, "n1", "n2"), one("c", detector.Suspected, "n3", "n4")), nil, "", []string{"resolved a", "faded c"}, 0},
		"ended, another node is silent":        {list(one("a", detector.Confirmed, "n1", "n2")), nil, "n3", []string{"resolved a"}, 0},
		"ended, one of its nodes is silent":    {list(one("a", detector.Confirmed, "n1", "n2")), nil, "n2", []string{"resolved a"}, 0},
		"ended, or its nodes are those silent": {list(one("a", detector.Confirmed, "n1", "n1")), nil, "n1 (boot b)", nil, 1},
	} {
		events, open := compare(test.known, document.Conflicts{Conflicts: test.now, Coverage: document.Coverage{Partial: test.missing != "", Missing: []string{test.missing}}}, document.Query{}, time.Now())
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
	holder := func(node, namespace string) document.Binding {
		return document.Binding{Holder: document.Holder{Node: node, NetnsCookie: 1, Pod: &document.Pod{Namespace: namespace, Name: "web"}}}
	}
	before := document.Conflict{ID: "a", IP: netip.MustParseAddr("10.0.0.1"), State: detector.Confirmed, Holders: []document.Binding{holder("n1", "shop"), holder("n2", "a"), holder("n3", "b")}}
	after := before
	after.Holders = before.Holders[1:]
	q := document.Query{Namespace: "shop"}
	events, open := compare([]document.Conflict{before}, document.Conflicts{Conflicts: []document.Conflict{after}}, q, time.Now())
	if len(events) != 1 || events[0].Type != "changed" || len(open) != 1 {
		t.Errorf("%+v, %d open", events, len(open))
	}
	if events, _ := compare(open, document.Conflicts{}, q, time.Now()); len(events) != 0 {
		t.Errorf("%+v about pods that were not asked for", events)
	}

	unnamed := before
	unnamed.Holders = append([]document.Binding{{Holder: document.Holder{Node: "n1", NetnsCookie: 1}}}, before.Holders[1:]...)
	if events, _ := compare([]document.Conflict{unnamed}, document.Conflicts{Conflicts: []document.Conflict{before}}, q, time.Now()); len(events) != 1 || events[0].Type != "confirmed" {
		t.Errorf("%+v when the name of the pod came", events)
	}
}

// TestDifference: a watch of bindings reports what somebody would see as another binding, and nothing of what was only read again.
func TestDifference(t *testing.T) {
	read := func(given detector.Given, pod string) document.Binding { // as from a table that is read again: no pointer is the same
		return document.Binding{IP: netip.MustParseAddr("10.0.0.1"), Holder: document.Holder{Node: "n1", NetnsCookie: 1, Given: given, Pod: &document.Pod{Name: pod}}, LastSeen: time.Now()}
	}
	known := make(map[bindingKey]document.Binding)
	for _, step := range []struct {
		bindings []document.Binding
		want     []string
	}{
		{[]document.Binding{read(detector.GivenYes, "web")}, []string{"added"}},
		{[]document.Binding{read(detector.GivenYes, "web")}, nil},
		{[]document.Binding{read(detector.GivenNo, "web")}, []string{"changed"}},
		{[]document.Binding{read(detector.GivenNo, "db")}, []string{"changed"}},
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
	c := document.Conflict{ID: "a", IP: netip.MustParseAddr("10.0.0.1"), State: detector.Confirmed, SuspectedAt: now.Add(-2 * time.Hour), ConfirmedAt: now.Add(-time.Hour), Holders: []document.Binding{{Holder: document.Holder{Node: "n1"}}}}
	events, open := compare(nil, document.Conflicts{Conflicts: []document.Conflict{c}}, document.Query{}, now)
	if len(events) != 1 || !events[0].At.Equal(c.ConfirmedAt) {
		t.Errorf("events %+v, want one at %v", events, c.ConfirmedAt)
	}
	if events, _ := compare(open, document.Conflicts{}, document.Query{}, now); len(events) != 1 || !events[0].At.Equal(now) {
		t.Errorf("events %+v, want the end at %v", events, now)
	}
}
