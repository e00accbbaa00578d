package events

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// One of three holders ends, and with it the record of its node; the conflict of the other two goes on, and they have no second
// Event. That of the end does not say how many holders there are.
func TestOneOfThreeEnds(t *testing.T) {
	w := newWorld(t)
	c := w.conflict(1, detector.Confirmed)
	c.Holders = slices.Insert(c.Holders, 1, holder("red", "c1", 7))
	w.report(w.p, "red", c)
	w.report(w.p, "blue", c)
	w.run(time.Second)
	w.expect("three holders", "DuplicateIP a1, DuplicateIP b1, DuplicateIP c1")

	ended := c
	ended.State, ended.ResolvedAt = detector.Resolved, w.now
	w.report(w.p, "blue", ended)
	c.Holders = c.Holders[:2]
	w.report(w.p, "red", c)
	w.run(time.Second)
	w.expect("the third has ended", "DuplicateIPResolved b1")
	for _, e := range w.api {
		if e.Reason == ReasonResolved && !strings.HasPrefix(e.Note, "The conflict over the address 10.0.0.1 has ended for this pod, after ") {
			t.Errorf("%q", e.Note)
		}
	}
	for key := range w.p.state.conflicts {
		for _, merged := range w.p.state.merged(key) {
			if len(merged.Holders) != 2 {
				t.Errorf("%+v", merged.Holders)
			}
		}
	}
}

// What an agent reported that was started again, and has not reported again since, has ended; so has all of a node that was booted anew,
// at once, and of one that is away for long.
func TestNotReportedAgain(t *testing.T) {
	agent := func(boot string, epoch int64, since time.Time) []cluster.Member {
		return []cluster.Member{{Name: "red", Boot: boot, Epoch: epoch, Role: cluster.Agent, State: cluster.Alive, Since: since, Known: since}}
	}
	for _, tt := range []struct {
		name    string
		boot    string
		epoch   int64
		again   bool // it is reported again
		away    bool
		beside  bool
		anew    bool
		ends    time.Duration // 0 for never
		forever time.Duration
	}{
		{name: "the same agent, found again", boot: "boot", epoch: 1, forever: 10 * time.Minute},
		{name: "another agent", boot: "boot", epoch: 2, ends: reportedAgain},
		{name: "another agent, which reports it", boot: "boot", epoch: 2, again: true, forever: 10 * time.Minute},
		{name: "another boot", boot: "anew", epoch: 1, ends: -1}, // at once
		{name: "away", away: true, ends: awayAfter},
		{name: "away, with a namesake that was there beside it, whose agent is a new one", boot: "other", epoch: 2, beside: true, ends: awayAfter},
		{name: "another boot, and a namesake that was there beside it", boot: "other", epoch: 2, beside: true, anew: true, ends: -1},
	} {
		w := newWorld(t)
		c := w.conflict(1, detector.Confirmed)
		w.p.Members(agent("boot", 1, w.now), w.now)
		w.p.Conflict(cluster.Report{Node: "red/boot", Epoch: 1}, c, w.now)
		began := w.now
		for w.now.Sub(began) < max(tt.ends+20*time.Second, tt.forever) {
			if tt.again && w.now.Sub(began) == time.Minute {
				w.p.Conflict(cluster.Report{Node: "red/boot", Epoch: 2}, c, w.now)
			}
			members := agent(tt.boot, tt.epoch, began)
			if tt.beside {
				members[0].Known = began.Add(-time.Hour)
			}
			if tt.anew {
				members = append(members, agent("anew", 1, began)...)
			}
			if tt.away {
				members = nil
			}
			w.p.Members(members, w.now)
			open := len(w.p.state.conflicts) > 0
			if passed := w.now.Sub(began); open == (tt.ends != 0 && passed >= tt.ends) {
				t.Fatalf("%s: after %v it is open: %v", tt.name, passed, open)
			}
			w.now = w.now.Add(10 * time.Second)
		}
	}
}
