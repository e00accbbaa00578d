package events

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
)

// TestBookEvents: a node gets an Event for each kind of findings in the books of the API server, as long as there is one.
func TestBookEvents(t *testing.T) {
	w := newWorld(t)
	finding := func(kind, node, other string) document.Finding {
		return document.Finding{Kind: kind, IP: netip.MustParseAddr("10.0.0.7"), Holder: document.Holder{Node: node}, ReservedNode: other}
	}
	w.p.Findings([]document.Finding{
		finding(document.Misbooked, "red", "blue"), finding(document.Misbooked, "red", "blue"), finding(document.Unreserved, "red", ""),
		finding(document.Deleted, "green", ""), finding(document.Overlapping, "blue", "red"), finding(document.Twice, "blue", "green"),
		finding(document.Unlisted, "blue", ""), finding(document.Stale, "green", ""), finding(document.Unheld, "blue", ""), finding("of a later version", "blue", ""),
	})
	w.run(10 * time.Second)
	w.expect("findings", "DeletedNode green, MisbookedIP red, PodIPTwice blue, SharedPodRange blue, StaleIPAM green, UnlistedPod blue, UnreservedIP red")
	for _, e := range w.api {
		if strings.Contains(e.Note, "OTHER") || !strings.Contains(e.Note, "What to do: kubectl dupip audit --node "+e.Regarding.Name) {
			t.Errorf("%s: %s", e.Reason, e.Note)
		}
		if e.Reason == ReasonMisbooked && !strings.Contains(e.Note, "on node blue") {
			t.Errorf("%s", e.Note)
		}
	}
	// Another replica leads for a while, and nobody tells this one that it is over.
	before := len(w.api)
	w.p.Follow()
	w.run(time.Hour)
	w.p.Lead(nil, w.now)
	w.run(10 * time.Second)
	if n := len(w.api); n > before {
		t.Errorf("%d Events of what was found before: %s", n-before, w.written())
	}
	w.p.Findings(nil)
	w.run(time.Hour)
	if n := w.p.Stats().Pending; n > 0 {
		t.Errorf("%d are pending after the end", n)
	}
}
