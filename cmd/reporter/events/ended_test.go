package events

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
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
