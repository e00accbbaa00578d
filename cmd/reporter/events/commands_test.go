package events

import (
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Each Event that says what to do has the command that asks this release's reporter.
func TestCommands(t *testing.T) {
	const program = "kubectl dupip --dupip-namespace net"
	w := newWorld(t)
	w.p.Program = program
	w.p.Summary("red/boot", cluster.Summary{Findings: map[string]int{"unreserved address": 1}})
	for n := range maxOpen + 1 {
		w.report(w.p, "red", w.conflict(n, detector.Confirmed))
	}
	w.run(time.Minute)
	want := map[string]string{
		ReasonDuplicate: " explain 10.0.0.", ReasonSummary: " conflicts", ReasonRange: " conflicts", ReasonUnreserved: " audit --node red",
	}
	seen := make(map[string]bool)
	for _, e := range w.api {
		seen[e.Reason] = true
		if _, command, _ := strings.Cut(e.Note, "What to do: "); !strings.HasPrefix(command, program+want[e.Reason]) {
			t.Errorf("%s: %s", e.Reason, e.Note)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("there are Events for %v", seen)
	}
}
