package othertools

import (
	"net/netip"
	"testing"
	"time"
)

func TestMobility(t *testing.T) {
	a, b := location{"one", "02:00:00:00:00:01", "veth3"}, location{"two", "02:00:00:00:00:02", "veth3"}
	type step struct {
		after time.Duration
		at    location
		// gone is a port that has vanished before.
		gone location
	}
	second := time.Second
	turns := func(n int, every time.Duration) (all []step) {
		for i := range n {
			all = append(all, step{after: every, at: []location{a, b}[i%2]})
		}
		return all
	}
	clone, moved := a, a
	clone.node = "two"
	moved.port = "veth4"
	for _, tt := range []struct {
		name  string
		steps []step
		want  int
	}{
		{"one place", []step{{at: a}, {second, a, location{}}, {second, a, location{}}}, 0},
		{"four moves", turns(5, second), 0},
		{"five moves", turns(6, second), 1},
		{"ten moves", turns(11, second), 2},
		{"five moves in 180 s", turns(6, 45*second), 1},
		{"five moves in more", turns(6, 46*second), 0},
		{"one that sends alone", append(turns(5, second), step{second, a, location{}}, step{second, a, location{}}), 0},
		{"the previous port is gone each time", []step{
			{at: a}, {second, b, a}, {second, a, b}, {second, b, a}, {second, a, b}, {second, b, a}, {second, a, b},
		}, 0},
		{"the same MAC on two nodes", []step{
			{at: a}, {second, clone, b}, {second, a, b}, {second, clone, b}, {second, a, b}, {second, clone, b},
		}, 1},
		{"two ports of one node", []step{
			{at: a}, {second, moved, b}, {second, a, b}, {second, moved, b}, {second, a, b}, {second, moved, b},
		}, 1},
	} {
		m, now, got := mobility{}, time.Time{}, 0
		for _, s := range tt.steps {
			now = now.Add(s.after)
			if m.update(now, host{"cluster", netip.MustParseAddr("10.9.0.5")}, s.at, func(p location) bool { return p != s.gone }) {
				got++
			}
		}
		if got != tt.want {
			t.Errorf("%s: found %d times, want %d", tt.name, got, tt.want)
		}
	}
}

// One address in two broadcast domains is two hosts.
func TestMobilityDomains(t *testing.T) {
	m := mobility{}
	for i := range 20 {
		at := location{"one", "02:00:00:00:00:01", "veth3"}
		h := host{[]string{"red", "blue"}[i%2], netip.MustParseAddr("10.9.0.5")}
		if m.update(time.Time{}, h, at, func(location) bool { return true }) {
			t.Fatal("found")
		}
	}
}
