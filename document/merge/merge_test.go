package merge

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is a time in seconds after noon; 0 is the zero time.
func at(seconds int) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return noon.Add(time.Duration(seconds) * time.Second)
}

var rules = Rules{
	ClusterWide: func(network string) bool { return network == "default" },
	Shared:      func(ip netip.Addr) bool { return ip == netip.MustParseAddr("10.0.0.53") },
}

var ip = netip.MustParseAddr("10.0.0.1")

// on makes a holder on a node; the NodeID of n1 is "n1/b".
func on(node string, netns uint64, seconds int) document.Binding {
	return document.Binding{
		Network: "default", IP: ip, Holder: document.Holder{Node: node, BootID: "b", NetnsCookie: netns},
		Evidence: detector.Announced, FirstSeen: at(seconds), LastSeen: at(seconds + 1),
	}
}

func conflict(id string, state detector.State, from, to int, holders ...document.Binding) document.Conflict {
	c := document.Conflict{
		ID: id, Network: "default", IP: ip, State: state, Scope: detector.SameNode, SuspectedAt: at(from), Holders: holders,
	}
	if state == detector.Confirmed {
		c.ConfirmedAt = at(from + 1)
	}
	if state == detector.Resolved {
		c.ConfirmedAt, c.ResolvedAt = at(from+1), at(to)
	}
	return c
}

func from(node string, conflicts ...document.Conflict) document.Answer {
	return document.Answer{Node: node, BootID: "b", Conflicts: conflicts}
}

// compareAll compares documents, which have addresses.
var compareAll = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// summary has one line per conflict: id, state, scope, times, holders.
func summary(conflicts []document.Conflict) []string {
	var lines []string
	for _, c := range conflicts {
		line := fmt.Sprintf("%s %s %s %.0f", c.ID, c.State, c.Scope, c.SuspectedAt.Sub(noon).Seconds())
		if !c.ResolvedAt.IsZero() {
			line += fmt.Sprintf("-%.0f", c.ResolvedAt.Sub(noon).Seconds())
		}
		for _, b := range c.Holders {
			line += fmt.Sprintf(" %s:%d", b.Node, b.NetnsCookie)
			if b.Gone {
				line += "?"
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestConflicts(t *testing.T) {
	const suspected, confirmed, resolved = detector.Suspected, detector.Confirmed, detector.Resolved
	a, b, c, d := on("n1", 1, 10), on("n2", 2, 20), on("n3", 3, 30), on("n4", 4, 40)
	for _, test := range []struct {
		name    string
		answers []document.Answer
		want    []string
	}{
		{
			"both sides of one",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 21, 0, a, b)), from("n2", conflict("x-1", confirmed, 20, 0, a, b))},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:2"},
		},
		{
			"the strongest open state",
			[]document.Answer{from("n1", conflict("x-1", resolved, 20, 30, a, b)), from("n2", conflict("x-1", suspected, 21, 0, a, b))},
			[]string{"x-1 suspected cross-node 20 n1:1 n2:2"},
		},
		{
			"confirmed goes before suspected",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a, b)), from("n2", conflict("x-1", suspected, 21, 0, a, b))},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:2"},
		},
		{
			"resolved if all say so, with the latest end",
			[]document.Answer{from("n1", conflict("x-1", resolved, 20, 30, a, b)), from("n2", conflict("x-1", resolved, 21, 33, a, b))},
			[]string{"x-1 resolved cross-node 20-33 n1:1 n2:2"},
		},
		{
			"a chain of holders",
			[]document.Answer{
				from("n1", conflict("x-1", confirmed, 20, 0, a, b)),
				from("n2", conflict("x-1", confirmed, 21, 0, b, c)),
				from("n3", conflict("x-1", confirmed, 30, 0, c, d)),
			},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:2 n3:3 n4:4"},
		},
		{
			"different ids, because one side has a longer history",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 1, 5, a, c), conflict("x-2", confirmed, 20, 0, a, b)),
				from("n2", conflict("x-1", confirmed, 21, 0, a, b)),
			},
			[]string{"x-2 confirmed cross-node 20 n1:1 n2:2", "x-1 resolved cross-node 1-5 n1:1 n3:3"},
		},
		{
			"one id at different times, without a common holder",
			[]document.Answer{from("n1", conflict("x-1", resolved, 1, 5, a, b)), from("n3", conflict("x-1", confirmed, 40, 0, c, d))},
			[]string{"x-1 confirmed cross-node 40 n3:3 n4:4", "x-1 resolved cross-node 1-5 n1:1 n2:2"},
		},
		{
			"two records of one node are two conflicts",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 20, 30, a, b), conflict("x-2", confirmed, 30, 0, a, b)),
				from("n2", conflict("x-1", resolved, 20, 31, a, b), conflict("x-2", confirmed, 31, 0, a, b)),
			},
			[]string{"x-2 confirmed cross-node 30 n1:1 n2:2", "x-1 resolved cross-node 20-31 n1:1 n2:2"},
		},
		{
			"reports of nodes that are not in the conflict are ignored",
			[]document.Answer{
				from("n1", conflict("x-1", confirmed, 20, 0, a, b)), from("n9", conflict("x-1", resolved, 1, 2, a, b)),
			},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:2"},
		},
		{
			"open ones without a common holder are one, of those who are proven; those that ended are in order",
			[]document.Answer{
				from("n3", conflict("x-2", confirmed, 30, 0, c, d)),
				from("n2", conflict("x-1", resolved, 2, 3, b, c), conflict("x-0", resolved, 1, 9, b, c)),
				from("n1", conflict("x-3", suspected, 10, 0, a, on("n1", 5, 1))),
			},
			[]string{
				"x-3 confirmed cross-node 10 n3:3 n4:4",
				"x-0 resolved cross-node 1-9 n2:2 n3:3", "x-1 resolved cross-node 2-3 n2:2 n3:3",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 {
				got, omitted := Conflicts(test.answers, rules)
				if diff := cmp.Diff(test.want, summary(got)); diff != "" || omitted != 0 {
					t.Errorf("%d omitted, (-want +got):\n%s", omitted, diff)
				}
				slices.Reverse(test.answers) // the order does not matter
			}
		})
	}
}

// A bridge network exists on each node: its conflicts are joined for each node only, though they have the
// same id.
func TestConflictsInNodeNetworks(t *testing.T) {
	first := conflict("x-1", detector.Confirmed, 20, 0, on("n1", 1, 1), on("n1", 2, 2))
	second := conflict("x-1", detector.Confirmed, 21, 0, on("n2", 1, 1), on("n2", 2, 2))
	first.Network, second.Network = "docker0", "docker0"
	got, _ := Conflicts([]document.Answer{from("n1", first), from("n2", second)}, rules)
	want := []string{"x-1 confirmed same-node 20 n1:1 n1:2", "x-1 confirmed same-node 21 n2:1 n2:2"}
	if diff := cmp.Diff(want, summary(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The report of the holder's own node wins; others may add a name.
func TestHolderDescriptions(t *testing.T) {
	mine, theirs, third := on("n1", 1, 10), on("n1", 1, 15), on("n1", 1, 16)
	mine.Pod, theirs.Pod = &document.Pod{Name: "right"}, &document.Pod{Name: "wrong"}
	theirs.Unreachable, third.Unreachable = true, true
	far := on("n9", 9, 1)
	named := far
	far.Unreachable, named.Pod = true, &document.Pod{Name: "far"}
	h := make(holders)
	h.add("n2/b", []document.Binding{theirs, far})
	h.add("n1/b", []document.Binding{mine})
	h.add("n3/b", []document.Binding{third, named})
	want := []document.Binding{named, mine}
	if diff := cmp.Diff(want, h.list(), compareAll); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A holder has the facts that its own node knows, at last of an earlier boot; the count of shared addresses is the highest that a node
// with a holder knows.
func TestFacts(t *testing.T) {
	a, b := on("n1", 1, 10), on("n2", 2, 20)
	with := func(b document.Binding, behind document.Behind) document.Binding {
		b.Facts = &document.Facts{Behind: behind}
		return b
	}
	first := conflict("x-1", detector.Confirmed, 20, 0, with(a, "running"), with(b, "stopped"))
	second := conflict("x-1", detector.Confirmed, 20, 0, with(a, "stopped"), with(b, "running"))
	third := conflict("x-1", detector.Confirmed, 20, 0, with(a, "stopped"), with(b, "stopped"))
	first.Shared, second.Shared = 2, 3
	third.Shared = 4 // of nodes that n3 is none of
	stranger := from("n3", third)
	permuted([]document.Answer{from("n1", first), from("n2", second), stranger}, func(answers []document.Answer) {
		list, _ := Conflicts(answers, rules)
		if h := list[0].Holders; h[0].Facts.Behind != "running" || h[1].Facts.Behind != "running" || list[0].Shared != 3 {
			t.Errorf("%+v, %+v, %d shared", h[0].Facts, h[1].Facts, list[0].Shared)
		}
	})
	before := conflict("x-1", detector.Resolved, 20, 30, with(a, "stopped"), b)
	rebooted := from("n1", before)
	rebooted.BootID, rebooted.Self = "later", true
	permuted([]document.Answer{rebooted, from("n2", conflict("x-1", detector.Resolved, 20, 30, with(a, "running"), b))}, func(answers []document.Answer) {
		list, _ := Conflicts(answers, rules)
		if f := list[0].Holders[0].Facts; len(list) != 1 || f == nil || f.Behind != "stopped" {
			t.Errorf("%d conflicts, %+v", len(list), f)
		}
	})
}

// What a node's books say now counts, not what they said of an earlier conflict that is over for it.
func TestBooks(t *testing.T) {
	a, b := on("n1", 1, 10), on("n2", 2, 20)
	reserved := func(c document.Conflict, sandbox string) document.Conflict {
		c.Books = []document.Book{{Node: "n1", BootID: a.BootID, Kind: "host-local", Reservation: &document.Reservation{Sandbox: sandbox}}}
		return c
	}
	own := from("n1", reserved(conflict("x-1", detector.Resolved, 20, 30, a, b), "before"), reserved(conflict("x-2", detector.Confirmed, 40, 0, a, b), "now"))
	permuted([]document.Answer{own, from("n2", conflict("x-1", detector.Confirmed, 20, 0, a, b))}, func(answers []document.Answer) {
		list, _ := Conflicts(answers, rules)
		if len(list) != 1 || len(list[0].Books) != 1 || list[0].Books[0].Reservation.Sandbox != "now" {
			t.Errorf("%+v", list)
		}
	})
}

func TestBindings(t *testing.T) {
	lower, bridge, again := on("n1", 7, 1), on("n1", 8, 1), on("n2", 4, 5)
	lower.IP, bridge.Network, again.BootID = netip.MustParseAddr("10.0.0.0"), "docker0", "c"
	answers := []document.Answer{
		{Node: "n2", BootID: "b", Bindings: []document.Binding{on("n2", 2, 20)}, Omitted: 3},
		{Node: "n1", BootID: "b", Bindings: []document.Binding{bridge, on("n1", 1, 10), lower}, Omitted: 1},
		{Node: "n2", BootID: "c", Bindings: []document.Binding{again}},
	}
	permuted(answers, func(answers []document.Answer) {
		got, omitted := Bindings(answers)
		var lines []string
		for _, b := range got {
			lines = append(lines, fmt.Sprintf("%s %s %s %d", b.Network, b.IP, b.NodeID(), b.NetnsCookie))
		}
		want := []string{"default 10.0.0.0 n1/b 7", "default 10.0.0.1 n2/c 4", "default 10.0.0.1 n1/b 1", "default 10.0.0.1 n2/b 2", "docker0 10.0.0.1 n1/b 8"}
		if diff := cmp.Diff(want, lines); diff != "" || omitted != 4 {
			t.Errorf("%d omitted, (-want +got):\n%s", omitted, diff)
		}
	})
}

// A long history of one address is joined by the IDs alone: there are too many records to compare each with
// each.
func TestConflictsJoinByID(t *testing.T) {
	const count = 2 * maxCompared
	one, two := from("n1"), from("n2")
	for n := range count {
		a, b := on("n1", uint64(n+1), n), on("n2", uint64(n+1), n)
		id := fmt.Sprint("x-", n)
		one.Conflicts = append(one.Conflicts, conflict(id, detector.Resolved, 10*n+1, 10*n+2, a))
		two.Conflicts = append(two.Conflicts, conflict(id, detector.Resolved, 10*n+1, 10*n+2, b))
	}
	got, omitted := Conflicts([]document.Answer{one, two}, rules)
	if len(got) != count || omitted != 0 {
		t.Fatalf("got %d conflicts, %d omitted, want %d and 0", len(got), omitted, count)
	}
	for _, c := range got {
		if len(c.Holders) != 2 {
			t.Fatalf("conflict %s has %d holders, want 2", c.ID, len(c.Holders))
		}
	}
}

// What many answers have is limited, and what is left out is counted; the asking node's own records are never left out.
func TestHostileAnswers(t *testing.T) {
	flood := from("n2")
	for n := range maxBindings + 10 {
		flood.Bindings = append(flood.Bindings, on("n2", uint64(n), 1))
	}
	for n := range maxConflicts + 10 {
		from := n%1000 + 1
		flood.Conflicts = append(flood.Conflicts, conflict(fmt.Sprint("x-", n%3000), detector.Resolved, from, from, on("n2", uint64(n), 1), on("n1", 1, 1)))
	}
	var crowd []document.Binding
	for n := range 10 * maxHolders {
		crowd = append(crowd, on("n2", uint64(n), n))
	}
	flood.Conflicts[0].Holders = crowd
	for range 100 {
		flood.Stories = append(flood.Stories, document.Story{
			Network: "default", IP: ip, Verdict: "a lie", Bindings: crowd, Notes: []document.Note{{At: at(1), Text: "noise"}},
		})
	}
	mine := from("n1", conflict("mine", detector.Confirmed, 5000, 0, on("n1", 1, 10), on("n1", 2, 10)))
	mine.Self = true
	mine.Bindings = []document.Binding{on("n1", 1, 10)}
	mine.Stories = []document.Story{{Network: "default", IP: ip, Verdict: "the truth", Bindings: mine.Bindings}}
	answers := []document.Answer{flood, mine}
	bindings, omitted := Bindings(answers)
	if len(bindings) != maxBindings+1 || omitted != 10 || !slices.ContainsFunc(bindings, func(b document.Binding) bool { return b.Node == "n1" }) {
		t.Errorf("%d bindings, %d omitted", len(bindings), omitted)
	}
	conflicts, omitted := Conflicts(answers, rules)
	if len(conflicts) == 0 || conflicts[0].ID != "mine" || omitted != 10 {
		t.Errorf("%d conflicts, %d omitted", len(conflicts), omitted)
	}
	for _, c := range conflicts {
		if len(c.Holders) > maxHolders {
			t.Errorf("%d holders", len(c.Holders))
		}
	}
	stories := Stories(answers, rules)
	if len(stories) != 1 {
		t.Fatalf("%d stories", len(stories))
	}
	// Each node has one story, and what the asking node knows is not crowded out.
	s := stories[0]
	if len(s.Notes) != 1 || !slices.Equal(s.Nodes, []string{"n1", "n2"}) || len(s.Bindings) != maxHolders ||
		!slices.ContainsFunc(s.Bindings, func(b document.Binding) bool { return b.Node == "n1" }) {
		t.Errorf("a story with %d notes and %d holders from %v", len(s.Notes), len(s.Bindings), s.Nodes)
	}
	var shared []document.Conflict
	for n := range 100 * maxPaired {
		c := conflict(fmt.Sprint("y-", n), detector.Confirmed, n, n)
		c.IP = netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)})
		for other := range 2 * maxPaired {
			c.Holders = append(c.Holders, on(fmt.Sprint("n", n/10*(other+1)), uint64(other+1), 1))
		}
		shared = append(shared, c)
	}
	pairs := Pairs(shared)
	if len(pairs) != maxPairs || len(pairs[0].Examples) > maxExamples {
		t.Errorf("%d pairs", len(pairs))
	}
}

func TestPairs(t *testing.T) {
	address := func(ip string) document.Address {
		return document.Address{Network: "default", IP: netip.MustParseAddr(ip)}
	}
	between := func(ip string, state detector.State, nodes ...string) document.Conflict {
		c := document.Conflict{Network: "default", IP: netip.MustParseAddr(ip), State: state, ConfirmedAt: at(10)}
		for n, node := range nodes {
			c.Holders = append(c.Holders, on(node, uint64(n+1), 1))
		}
		return c
	}
	conflicts := []document.Conflict{
		between("10.0.0.1", detector.Confirmed, "n1", "n2"),
		between("10.0.0.2", detector.Confirmed, "n2", "n1", "n3", "n2"),
		between("10.0.0.3", detector.Suspected, "n1", "n2"),
		between("10.0.0.4", detector.Resolved, "n1", "n2"),
		between("10.0.0.5", detector.Confirmed, "n1", "n1"),
		between("192.0.2.7", detector.Confirmed, "n1", "n2"),
	}
	conflicts[1].ConfirmedAt, conflicts[5].Drill = at(4), true
	first, second := address("10.0.0.1"), address("10.0.0.2")
	want := []Pair{
		{"n1/b", "n2/b", document.Pair{Nodes: []string{"n1", "n2"}, Addresses: 2, Examples: []document.Address{first, second}, Since: at(4)}},
		{"n1/b", "n3/b", document.Pair{Nodes: []string{"n1", "n3"}, Addresses: 1, Examples: []document.Address{second}, Since: at(4)}},
		{"n2/b", "n3/b", document.Pair{Nodes: []string{"n2", "n3"}, Addresses: 1, Examples: []document.Address{second}, Since: at(4)}},
	}
	if diff := cmp.Diff(want, Pairs(conflicts), compareAll); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNames(t *testing.T) {
	got := Names([]string{"n1/0123456789ab", "n2/b", "n1/ffff", "n2/b", "n1/0123456789ab", ""})
	want := map[string]string{"n1/0123456789ab": "n1 (boot 01234567)", "n2/b": "n2", "n1/ffff": "n1 (boot ffff)", "": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
