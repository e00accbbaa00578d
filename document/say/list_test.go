package say

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// outline is what to do, with the first words of each step.
func outline(list []Entry) (lines []string) {
	for _, e := range list {
		lines = append(lines, e.Head())
		for _, s := range e.Steps {
			lines = append(lines, "- "+strings.Join(strings.Fields(s.If + " " + s.Text)[:4], " "))
		}
	}
	return lines
}

// nth is a conflict of an address of its own.
func nth(n int, c document.Conflict) document.Conflict {
	c.IP, c.Judgement = netip.MustParseAddr(fmt.Sprint("10.0.0.", n)), new(*c.Judgement)
	Fill(&c, at)
	return c
}

// What several nodes say of the routes to one address is one sentence.
func TestRepairsOfRoutes(t *testing.T) {
	from := func(node string, last int, through ...string) document.Finding {
		f := finding(document.Misrouted)
		f.Node, f.IP = node, netip.MustParseAddr(fmt.Sprint("10.1.2.", last))
		if through != nil {
			f.Through = through
		}
		return f
	}
	elsewhere := from("n4", 8)
	elsewhere.HeldBy = "n9"
	list := Repairs(document.Audit{Findings: []document.Finding{from("n2", 5), from("n4", 5), from("n5", 5, "n4", "n1"), from("n2", 7), from("n4", 7), from("n4", 6), elsewhere}})
	if len(list) != 3 || len(list[0].Steps) == 0 || list[1].Steps != nil || list[2].Steps != nil || !strings.HasPrefix(list[1].Text, "Packets from node n5 to 10.1.2.5 go to node n4, then n1,") || !strings.Contains(list[2].Text, "10.1.2.8") || !strings.HasPrefix(list[0].Text, "Packets from nodes n2 and n4 to 10.1.2.5 go to node n1, which has no route for them. ") ||
		!strings.HasSuffix(list[0].Text, " Likewise: 10.1.2.6, 10.1.2.7.") {
		t.Errorf("%+v", list)
	}
	var many []document.Finding
	for n := range 50 {
		many = append(many, from("n2", n, fmt.Sprint("m", n)))
	}
	if list = Repairs(document.Audit{Findings: many}); len(list) != maxBrief {
		t.Errorf("%d entries of 50 ways", len(list))
	}
}

// Findings that are repaired in different ways are no others of one sort.
func TestRepairsOfNodes(t *testing.T) {
	var all []document.Finding
	last := 0
	for _, change := range []func(*document.Finding){
		func(*document.Finding) {},
		func(f *document.Finding) { f.Node, f.HeldBy = "n2", "n1" },
		func(f *document.Finding) { f.HeldBy = "n3" },
		func(f *document.Finding) { f.Gateway = true },
		func(f *document.Finding) { f.Gateway, f.Pods = true, 3 },
		func(f *document.Finding) { f.Gateway, f.Prefix = true, netip.Prefix{} },
		func(f *document.Finding) { f.Prefix = netip.PrefixFrom(f.IP, 24) },
		func(f *document.Finding) { f.Interface = "bond7" },
		func(f *document.Finding) { f.Netns, f.Bridge = "pod", "eth1" },
		func(f *document.Finding) { f.Netns, f.Bridge = "pod", "eth2" },
		func(f *document.Finding) { f.Kind, f.HeldBy, f.By = document.Stranger, "", detector.MAC{2, 1} },
		func(f *document.Finding) { f.Kind, f.By = document.Stranger, detector.MAC{2, 2} },
	} {
		for range 2 {
			f := finding(document.TwoNodes)
			change(&f)
			last++
			f.IP = netip.AddrFrom4([4]byte{10, 1, 2, byte(last)})
			all = append(all, f)
		}
	}
	list := Repairs(document.Audit{Findings: all})
	if len(list) != min(len(all)/2, 2*maxBrief) {
		t.Errorf("%d entries: %+v", len(list), list)
	}
	for _, e := range list {
		if others := strings.Count(e.Text, " Likewise: 10.1.2."); others != 1 || strings.Contains(e.Text, ",10.1.2") {
			t.Errorf("%s", e.Text)
		}
	}
	for want, f := range map[string]document.Finding{
		"host, also n2": all[0], "host, also n1": all[2], "host, also 02:01:00:00:00:00": all[20], "shop/web-0 on n3": finding(document.Diverted), "shop/web-0": finding(document.Unreserved),
	} {
		if got := HolderOf(f); got != want {
			t.Errorf("%s: %s", want, got)
		}
	}
}

// A few conflicts get all that is to be said; of more, each sort gets one sentence and at most one command.
func TestEntries(t *testing.T) {
	gone := func() document.Conflict {
		return judged(document.CauseByHand, certain, "1 remove not-given, 0 keep given", holder("web-0", given(yes)), holder("db-11", given(no), node("b")))
	}
	unknown := func() document.Conflict {
		return judged(document.CauseUnknown, open, bothOpen, holder("web-0", given(yes)), holder("db-11", given(yes), node("b")))
	}
	suspected := document.Conflict{IP: netip.MustParseAddr("10.0.0.90"), Network: "default", State: detector.Suspected, Pending: "a reason"}
	drill, over := suspected, nth(92, gone())
	drill.IP, drill.State, drill.Drill = netip.MustParseAddr("192.0.2.1"), detector.Confirmed, true
	over.State = detector.Resolved
	few := document.Conflicts{Conflicts: []document.Conflict{nth(1, gone()), suspected, drill, over}}
	want := []string{
		"10.0.0.1: " + few.Conflicts[0].Judgement.Text, "- Remove shop/db-11 on n2,", "- If the answer is",
		"10.0.0.90: Wait. It is suspected, not confirmed: a reason.",
		"192.0.2.1: Nothing: it is a drill, which ends by itself.",
	}
	if diff := cmp.Diff(want, outline(Entries(few))); diff != "" {
		t.Errorf("few (-want +got)\n%s", diff)
	}
	bare := nth(6, gone())
	bare.Judgement = nil
	many := document.Conflicts{Conflicts: []document.Conflict{nth(1, gone()), nth(2, gone()), nth(3, unknown()), nth(4, unknown()), bare}}
	want = []string{
		"10.0.0.1, 10.0.0.2: shop/db-11 has an address that a network plugin gave to shop/web-0.", "- Remove shop/db-11 on n2,",
		"10.0.0.3, 10.0.0.4: It is not known which holder is right. Ask the IPAM of the pods before you delete one.",
		`"dupip explain IP" says what to do about each, and about 1 more address.`,
	}
	if diff := cmp.Diff(want, outline(Entries(many))); diff != "" {
		t.Errorf("many (-want +got)\n%s", diff)
	}
	// Nodes that share many addresses are drained, and no pod of them is deleted.
	ranged := document.Conflicts{Pairs: []document.Pair{{Nodes: []string{"n1", "n2"}, Addresses: document.FewShared + 1}}}
	for n := range 5 {
		ranged.Conflicts = append(ranged.Conflicts, nth(n, judged(document.CauseSharedRange, open, bothOpen, holder("web-0"), holder("db-11", node("b")))))
	}
	want = []string{"", "- n1 and n2 share", "- If n1 is the", "- If n2 is the"}
	if diff := cmp.Diff(want, outline(Entries(ranged))); diff != "" {
		t.Errorf("a range (-want +got)\n%s", diff)
	}
	if got := outline(Many(ranged)); len(got) != 3 || got[1] != want[1] {
		t.Errorf("many of a range: %q", got)
	}
	// Several conflicts of one bridge have one step about its range.
	for count := range 6 {
		var local document.Conflicts
		for n := range count {
			c := judged(document.CauseUnknown, open, bothOpen, holder("", noPod), holder("", noPod, node("b")))
			c.Holders[0].Bridge, c.Holders[1].Bridge = "docker1", "docker1"
			local.Conflicts = append(local.Conflicts, nth(n, c))
		}
		want := count
		if count > maxWhole {
			want = 1
		}
		if said := strings.Count(strings.Join(outline(Entries(local)), "\n"), "- If the range of"); said != want {
			t.Errorf("%d conflicts: said %d times", count, said)
		}
	}
	malformed := document.Conflicts{Conflicts: few.Conflicts, Pairs: []document.Pair{{Addresses: 99}, {Nodes: []string{"n1"}, Addresses: 99}}}
	if got := len(Entries(malformed)); got != 3 {
		t.Errorf("pairs of no two nodes: %d entries", got)
	}
}

// The steps about a range stand for a conflict only if its nodes share many addresses, and if no pod of it has to go.
func TestIsShared(t *testing.T) {
	between := judged(document.CauseSharedRange, open, bothOpen, holder("web-0"), holder("db-11", node("b")))
	const many = document.FewShared + 1
	for name, test := range map[string]struct {
		pair    document.Pair
		c       document.Conflict
		want    bool
		claimer string
	}{
		"a range":      {document.Pair{Nodes: []string{"n1", "n2"}, Addresses: many}, between, true, ""},
		"not judged":   {document.Pair{Nodes: []string{"n1", "n2"}, Addresses: many}, with(between, func(c *document.Conflict) { c.Judgement = nil }), true, ""},
		"by hand":      {document.Pair{Nodes: []string{"n1", "n2"}, Addresses: many}, judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given", between.Holders...), false, ""},
		"few":          {document.Pair{Nodes: []string{"n1", "n2"}, Addresses: document.FewShared}, between, false, ""},
		"other nodes":  {document.Pair{Nodes: []string{"n1", "n3"}, Addresses: many}, between, false, ""},
		"by boots":     {document.Pair{Nodes: []string{"n1 (boot aaaaaaaa)", "n2"}, Addresses: many}, between, true, ""},
		"other boots":  {document.Pair{Nodes: []string{"n1 (boot cccccccc)", "n2"}, Addresses: many}, between, false, ""},
		"no two nodes": {document.Pair{Nodes: []string{"n1"}, Addresses: many}, between, false, ""},
		// While a node shares addresses with many, no step removes a pod from it.
		"a claimant": {document.Pair{Nodes: []string{"n1", "n2"}, Addresses: 1}, judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given", between.Holders...), true, "n2"},
		"another's":  {document.Pair{Nodes: []string{"n1", "n2"}, Addresses: 1}, judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given", between.Holders...), false, "n3"},
	} {
		if got := isShared(document.Conflicts{Pairs: []document.Pair{test.pair}}, test.c, test.claimer); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// In a long list a conflict has its first step only if that is right without a condition, and says what it cuts.
func TestFirstStep(t *testing.T) {
	for name, test := range map[string]struct {
		steps []document.Step
		want  int
	}{
		"a command":          {[]document.Step{{Text: "Remove it", Command: "x", Cuts: "y"}}, 1},
		"with a condition":   {[]document.Step{{If: "If so", Text: "Remove it", Command: "x", Cuts: "y"}}, 0},
		"no command":         {[]document.Step{{Text: "Remove it", Cuts: "y"}}, 0},
		"it cuts who knows":  {[]document.Step{{Text: "Remove it", Command: "x"}}, 0},
		"there are no steps": {nil, 0},
	} {
		c := judged(document.CauseUnknown, open, bothOpen, holder("web-0"), holder("db-11"))
		c.Judgement.Short, c.Judgement.Steps = "It is so.", test.steps
		unjudged := with(c, func(c *document.Conflict) { c.Judgement = nil })
		got := Entries(document.Conflicts{Conflicts: []document.Conflict{c, unjudged}})
		if len(got) != 2 || got[0].Text != "It is so." || len(got[0].Steps) != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// If a judgement is open, a sentence says that other nodes, which were not asked, may know more.
func TestUnasked(t *testing.T) {
	c := judged(document.CauseUnknown, open, bothOpen, holder("web-0"), holder("db-11", node("b")))
	sameNode := judged(document.CauseUnknown, open, bothOpen, holder("web-0"), holder("db-11"))
	decided := with(c, func(c *document.Conflict) { c.Judgement = &document.Judgement{Confidence: certain} })
	if Unasked(document.Coverage{Asked: 1}, sameNode, c) == "" {
		t.Error("no sentence about nodes that were not asked")
	}
	for name, text := range map[string]string{
		"all were asked": Unasked(document.Coverage{Asked: 2}, c), "alone": Unasked(document.Coverage{Alone: true}, c),
		"of one node": Unasked(document.Coverage{}, sameNode), "decided": Unasked(document.Coverage{}, decided),
		"not judged": Unasked(document.Coverage{}, with(c, func(c *document.Conflict) { c.Judgement = nil })),
	} {
		if text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// Who reads it must never remove the other one: with the verdicts of two holders exchanged, it says something else.
func TestNoticesSwap(t *testing.T) {
	for _, s := range situations() {
		if len(s.c.Holders) != 2 || s.c.Judgement.Confidence == open {
			continue
		}
		swapped := s.c
		swapped.Holders = slices.Clone(s.c.Holders)
		swapped.Judgement = new(*s.c.Judgement)
		swapped.Judgement.Holders = slices.Clone(s.c.Judgement.Holders)
		for n := range swapped.Judgement.Holders {
			swapped.Judgement.Holders[n].Holder = 1 - swapped.Judgement.Holders[n].Holder
		}
		Fill(&s.c, at)
		Fill(&swapped, at)
		if s.c.Judgement.Text == swapped.Judgement.Text || len(s.c.Judgement.Steps) > 0 && cmp.Equal(s.c.Judgement.Steps, swapped.Judgement.Steps) && s.c.Judgement.Cause != document.CauseEnding {
			t.Errorf("%s: the same with the holders exchanged: %s", s.name, s.c.Judgement.Text)
		}
	}
}

// The findings of another book are repaired in another way: none is likewise.
func TestRepairsOfEachBook(t *testing.T) {
	azure := finding(document.Unreserved)
	azure.Book, azure.IP = bookAzureCNS, ip
	if list := Repairs(document.Audit{Findings: []document.Finding{finding(document.Unreserved), azure}}); len(list) != 2 || strings.Contains(list[0].Text, "Likewise") {
		t.Errorf("%+v", list)
	}
}
