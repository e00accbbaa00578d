package members

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// Who has lost all others says so before it has tried to join them again.
func TestAloneProblem(t *testing.T) {
	for name, test := range map[string]struct {
		counts map[cluster.State]int
		err    error
		want   string
	}{
		"the first":       {map[cluster.State]int{cluster.Alive: 1}, nil, ""},
		"all others left": {map[cluster.State]int{cluster.Alive: 1, cluster.Left: 2}, nil, ""},
		"one is there":    {map[cluster.State]int{cluster.Alive: 2, cluster.Dead: 1}, nil, ""},
		"not sure yet":    {map[cluster.State]int{cluster.Alive: 1, cluster.Suspect: 1, cluster.Dead: 1}, nil, ""},
		"all are lost":    {map[cluster.State]int{cluster.Alive: 1, cluster.Dead: 2}, nil, "this node is alone: none of 2 other nodes"},
		"and tried":       {map[cluster.State]int{cluster.Alive: 1, cluster.Dead: 2}, errors.New("no route"), "this node is alone: no route"},
	} {
		j := newJoins(nil, nil, time.Now())
		j.outcome(test.err, 1)
		got := strings.Join(j.problems(test.counts), "; ")
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// Who hears nobody says so long before all others are taken for dead.
func TestCutOffProblem(t *testing.T) {
	var trouble trouble
	began := time.Now()
	fails := func() {
		trouble.hear("memberlist: Suspect a/1 has failed, no acks received", began)
	}
	cutOff := func() bool {
		return strings.Contains(strings.Join(trouble.problems(nil, "10.0.0.9:1", began), "; "), "is cut off")
	}
	for range silentAfter - 1 {
		fails()
	}
	if cutOff() {
		t.Errorf("it says so after %d pings", silentAfter-1)
	}
	trouble.answered(1)
	for range silentAfter - 1 {
		fails()
	}
	if cutOff() {
		t.Error("it says so though somebody answered")
	}
	fails()
	if !cutOff() {
		t.Error("it does not say so")
	}
	trouble.hear("memberlist: Was able to connect to a/1 over TCP but UDP probes failed, network may be misconfigured", began)
	if cutOff() {
		t.Error("it says so though somebody answered by TCP")
	}
	for range silentAfter {
		fails()
	}
	began = began.Add(silentFor + time.Second)
	if cutOff() {
		t.Error("it says so long after")
	}
}
