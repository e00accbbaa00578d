package advice

import (
	"strings"
	"testing"

	"github.com/dupip/dupip/document"
)

func TestNewer(t *testing.T) {
	for _, test := range []struct {
		name    string
		holders []document.Binding
		want    string
	}{
		{"created", []document.Binding{on("n1", "a", 0, 0), on("n2", "b", 12, 12)}, "1 is newer than 0 by created 12s"},
		{"created, in the reverse order", []document.Binding{on("n1", "a", 0, 20), on("n1", "b", 0, 3)}, "0 is newer than 1 by created 17s"},
		{"created, all found at the start", []document.Binding{foundEarly(on("n1", "a", 50, 0)), foundEarly(on("n1", "b", 50, 12))}, "1 is newer than 0 by created 12s"},
		{"created at one time on one node", []document.Binding{on("n1", "a", 0, 0), on("n1", "b", 0.2, 0.1)}, "1 is newer than 0 by created 0.1s"},
		{"created at the same time on one node", []document.Binding{on("n1", "a", 0, 0), on("n1", "b", 9, 0)}, "unknown: together"},
		{"created at one time on two nodes", []document.Binding{on("n1", "a", 0, 0), on("n2", "b", 9, 1)}, "unknown: together"},
		{"created on two nodes", []document.Binding{on("n1", "a", 0, 0), on("n2", "b", 1, 1.1)}, "1 is newer than 0 by created 1.1s"},
		{"created later and seen earlier", []document.Binding{on("n1", "a", 0, 9), on("n2", "b", 20, 2)}, "unknown: another-order"},
		{"created later, seen at about one time", []document.Binding{on("n1", "a", 19.5, 9), on("n2", "b", 20, 2)}, "0 is newer than 1 by created 7s"},
		{"created later, the other seen at a start", []document.Binding{on("n1", "a", 0, 9), foundEarly(on("n2", "b", 20, 2))}, "0 is newer than 1 by created 7s"},
		{"one was created, the other at an unknown time", []document.Binding{on("n1", "a", 0, -1), on("n2", "b", 12, 12)}, "1 is newer than 0 by firstSeen 12s"},
		{"seen", []document.Binding{on("n1", "a", 0, -1), on("n1", "b", 1.5, -1)}, "1 is newer than 0 by firstSeen 1.5s"},
		{"seen together", []document.Binding{on("n1", "a", 0, -1), on("n1", "b", 1, -1)}, "unknown: together"},
		{"both found at a start", []document.Binding{foundEarly(on("n1", "a", 0, -1)), foundEarly(on("n1", "b", 20, -1))}, "unknown: found-at-start"},
		{"the older found at a start", []document.Binding{foundEarly(on("n1", "a", 0, -1)), on("n2", "b", 20, -1)}, "1 is newer than 0 by firstSeen 20s"},
		{"the older found at a start a moment ago", []document.Binding{foundEarly(on("n1", "a", 0, -1)), on("n1", "b", 0.25, -1)}, "1 is newer than 0 by firstSeen 0.25s"},
		{"the same on two nodes", []document.Binding{foundEarly(on("n1", "a", 0, -1)), on("n2", "b", 0.25, -1)}, "unknown: together"},
		{"an agent starts late", []document.Binding{on("n1", "a", 0, -1), foundEarly(on("n2", "b", 20, -1))}, "unknown: found-at-start"},
		{"three", []document.Binding{on("n1", "a", 0, 0), on("n2", "b", 5, 5), on("n3", "c", 9, 9)}, "2 is newer than 1 by created 4s"},
		{"three, the last two together", []document.Binding{on("n1", "a", 0, -1), on("n2", "b", 9, -1), on("n3", "c", 9.5, -1)}, "unknown: together"},
		{"three, two found at starts", []document.Binding{foundEarly(on("n1", "a", 0, -1)), foundEarly(on("n2", "b", 3, -1)), on("n3", "c", 9, -1)}, "2 is newer than 1 by firstSeen 6s"},
		{"a node", []document.Binding{host("n1"), on("n2", "b", 9, 9)}, "unknown: host"},
	} {
		got, _, _ := strings.Cut(outline(Of(between(test.holders...), names, nil)), "\n")
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// If the nodes had lost each other when the newer one came, the elder may be an orphan.
func TestAway(t *testing.T) {
	older, newer := on("n1", "web-0", 0, 0), withUID(on("n2", "web-1", 600, 600), "v")
	for _, test := range []struct {
		name string
		away map[string][]Away
		want string
	}{
		{"the elder's node", map[string][]Away{"n1/b": {{at(300), at(900)}}}, "unknown: away"},
		{"as the elder's node has it", map[string][]Away{"n2/b": {{at(300), at(900)}}}, "unknown: away"},
		{"before it was noticed", map[string][]Away{"n1/b": {{at(630), at(900)}}}, "unknown: away"},
		{"before", map[string][]Away{"n1/b": {{at(100), at(500)}}}, "1 is newer than 0 by created 600s"},
		{"afterwards", map[string][]Away{"n1/b": {{at(700), at(900)}}}, "1 is newer than 0 by created 600s"},
		{"one time of two", map[string][]Away{"n1/b": {{at(300), at(900)}, {at(5000), at(6000)}}}, "unknown: away"},
		{"another node", map[string][]Away{"n3/b": {{at(300), at(900)}}}, "1 is newer than 0 by created 600s"},
	} {
		a := Of(between(older, newer), names, test.away)
		got, _, _ := strings.Cut(outline(a), "\n")
		if got != test.want || (a.Away != nil) != (a.Unknown == "away") || len(a.Remove) != 2 {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if a.Away != nil && (a.Away.Elder != 0 || a.Away.Newer != 1 || strings.Join(a.Away.Nodes, " ") != "n1 n2") {
			t.Errorf("%s: %+v", test.name, a.Away)
		}
	}
	gone := goneHolder(on("n3", "web-9", -5, -5))
	if a := Of(between(gone, older, newer), names, map[string][]Away{"n1/b": {{at(300), at(900)}}}); a.Away.Elder != 1 || a.Away.Newer != 2 {
		t.Errorf("after one that has gone: %+v", a.Away)
	}
	if a := Of(between(older, on("n1", "web-2", 600, 600)), names, map[string][]Away{"n1/b": {{at(300), at(900)}}}); a.Newer == nil {
		t.Error("on one node they have always seen each other")
	}
}
