package merge

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

func storiesFrom(node string, stories ...document.Story) document.Answer {
	return document.Answer{Node: node, BootID: "b", Stories: stories}
}

// outline is a story in a few lines.
func outline(s document.Story) []string {
	lines := []string{fmt.Sprintf("%s %s: %s", s.Network, strings.Join(s.Nodes, ","), s.Verdict)}
	for _, v := range s.Verdicts {
		lines = append(lines, strings.Join(v.Nodes, ",")+" says "+v.Verdict)
	}
	if s.Conflict != nil {
		lines = append(lines, summary([]document.Conflict{*s.Conflict})...)
	}
	for _, b := range s.Bindings {
		lines = append(lines, fmt.Sprintf("%s:%d", b.Node, b.NetnsCookie))
	}
	for _, n := range s.Notes {
		lines = append(lines, n.Node+" notes "+n.Text)
	}
	return lines
}

func TestStories(t *testing.T) {
	a, b := on("n1", 1, 10), on("n2", 2, 20)
	open := conflict("x-1", detector.Confirmed, 20, 0, a, b)
	suspicion := conflict("x-1", detector.Suspected, 21, 0, a, b)
	past := conflict("x-0", detector.Resolved, 1, 5, a, b)
	notes := func(node string, texts ...string) (list []document.Note) {
		for _, text := range texts {
			var second int
			fmt.Sscanf(text, "%d", &second)
			list = append(list, document.Note{At: at(second), Node: node, BootID: "b", Text: text})
		}
		return list
	}
	story := func(verdict string, c *document.Conflict, n []document.Note, bindings ...document.Binding) document.Story {
		return document.Story{Network: "default", IP: ip, Verdict: verdict, Conflict: c, Notes: n, Bindings: bindings}
	}
	shared := func(s document.Story) document.Story {
		s.IP = netip.MustParseAddr("10.0.0.53")
		return s
	}
	local := func(s document.Story) document.Story {
		s.Network = "docker0"
		return s
	}
	const one = "one live holder: not a conflict"
	hostA, hostB := a, b
	hostA.Evidence, hostB.Evidence = detector.Host, detector.Host
	claimA, claimB, forwarder := a, b, b
	claimA.Evidence, claimB.Evidence, forwarder.Evidence = detector.Claimed, detector.Claimed, detector.Forwarded
	for _, test := range []struct {
		name    string
		answers []document.Answer
		want    [][]string
	}{
		{
			"agreed",
			[]document.Answer{
				storiesFrom("n1", story("a conflict", &open, notes("n1", "10 seen", "22 answered"), a, b)),
				storiesFrom("n2", story("a conflict", &open, notes("n2", "9 before", "20 seen"), b, a)),
				storiesFrom("n3"),
			},
			[][]string{{
				"default n1,n2: a conflict", "x-1 confirmed cross-node 20 n1:1 n2:2", "n1:1", "n2:2",
				"n2 notes 9 before", "n1 notes 10 seen", "n2 notes 20 seen", "n1 notes 22 answered",
			}},
		},
		{
			"the verdict of the node that knows most comes first",
			[]document.Answer{
				storiesFrom("n3", story("no live holder: not a conflict", nil, nil)),
				storiesFrom("n1", story("being verified", &suspicion, nil, a, b)),
				storiesFrom("n2", story("a conflict", &open, nil, b, a)),
			},
			[][]string{{
				"default n1,n2,n3: a conflict", "n1 says being verified", "n2 says a conflict", "n3 says no live holder: not a conflict",
				"x-1 confirmed cross-node 20 n1:1 n2:2", "n1:1", "n2:2",
			}},
		},
		{
			"not matched yet",
			[]document.Answer{storiesFrom("n1", story(one, &past, nil, a)), storiesFrom("n2", story(one, nil, nil, b))},
			[][]string{{
				"default n1,n2: two live holders on different nodes, which do not know of each other yet, or one did not answer: no conflict is known",
				"x-0 resolved cross-node 1-5 n1:1 n2:2", "n1:1", "n2:2",
			}},
		},
		{
			"shared addresses and nodes' own may have two",
			[]document.Answer{
				storiesFrom("n1", shared(story(one, nil, nil, a)), story("own", nil, nil, hostA)),
				storiesFrom("n2", shared(story(one, nil, nil, b)), story("own", nil, nil, hostB)),
			},
			[][]string{
				{"default n1,n2: two nodes have it as their own address, and not on one segment as far as is known: not a conflict", "n1:1", "n2:2"},
				{"default n1,n2: two live holders, but declared shared: not a conflict", "n1:1", "n2:2"},
			},
		},
		{
			"claims alone are none",
			[]document.Answer{storiesFrom("n1", story(one, nil, nil, claimA)), storiesFrom("n2", story(one, nil, nil, claimB))},
			[][]string{{"default n1,n2: two holders claim it and have it on other devices: not a conflict", "n1:1", "n2:2"}},
		},
		{
			"who only forwards is no holder",
			[]document.Answer{storiesFrom("n1", story(one, nil, nil, a)), storiesFrom("n2", story("known only as forwarded by r: not counted", nil, nil, forwarder))},
			[][]string{{
				"default n1,n2: " + one, "n1 says " + one, "n2 says known only as forwarded by r: not counted", "n1:1", "n2:2",
			}},
		},
		{
			"a node knows of a third holder that another does not know yet",
			[]document.Answer{storiesFrom("n1", story("a conflict", &open, nil, a, b)), storiesFrom("n3", story(one, nil, nil, on("n3", 3, 30)))},
			[][]string{{
				"default n1,n3: a conflict; live holders by the reports of all nodes: 3", "n1 says a conflict", "n3 says " + one,
				"x-1 confirmed cross-node 20 n1:1 n2:2", "n1:1", "n2:2", "n3:3",
			}},
		},
		{
			"networks of one node",
			[]document.Answer{storiesFrom("n1", local(story(one, nil, nil, a))), storiesFrom("n2", local(story(one, nil, nil, b)))},
			[][]string{{"docker0 n1: " + one, "n1:1"}, {"docker0 n2: " + one, "n2:2"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			permuted(test.answers, func(answers []document.Answer) {
				var got [][]string
				for _, s := range Stories(answers, rules) {
					got = append(got, outline(s))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What nodes know of the past of an address is joined: who had it, the last one first, and what each book said of the conflict.
func TestPast(t *testing.T) {
	var answers []document.Answer
	for n, node := range []string{"n1", "n2", "n3"} {
		var former []document.Binding
		for i := range 5 {
			b := on(node, uint64(i+1), 1)
			b.LastSeen = at(100 - 10*i - n)
			former = append(former, b)
		}
		c := conflict("x-1", detector.Resolved, 20, 30, on(node, 1, 10), on("n9", 2, 20))
		book := document.Book{Node: node, BootID: "b", Kind: "host-local", CNINetwork: "pods"}
		c.Books = []document.Book{book, book}
		answers = append(answers, storiesFrom(node, document.Story{Network: "default", IP: ip, Former: former, Conflict: &c}))
	}
	permuted(answers, func(answers []document.Answer) {
		s := Stories(answers, rules)[0]
		text := ""
		for _, b := range s.Former {
			text += fmt.Sprint(b.Node, " ", b.LastSeen.Sub(noon).Seconds(), ", ")
		}
		for _, b := range s.Conflict.Books {
			text += b.Node + " "
		}
		if want := "n1 100, n2 99, n3 98, n1 90, n2 89, n3 88, n1 80, n2 79, n1 n2 n3 "; text != want {
			t.Errorf("%s, want %s", text, want)
		}
	})
}

// The node that asks comes first, and of two boots with one name each has its boot id.
func TestNodesOfStories(t *testing.T) {
	s := document.Story{Network: "default", IP: ip, Verdict: "none"}
	asks, before := storiesFrom("n2", s), storiesFrom("n1", s)
	asks.Self, before.BootID = true, "a"
	permuted([]document.Answer{storiesFrom("n1", s), before, asks}, func(answers []document.Answer) {
		got := Stories(answers, rules)
		if want := []string{"n2", "n1 (boot a)", "n1 (boot b)"}; len(got) != 1 || !slices.Equal(got[0].Nodes, want) {
			t.Errorf("%+v", got)
		}
	})
}

// A note has the names of its holder that are known best, whoever made it.
func TestHoldersOfNotes(t *testing.T) {
	holder := func(netns string, pod *document.Pod) document.Holder {
		return document.Holder{Node: "n1", BootID: "b", NetnsCookie: 1, Netns: netns, Pod: pod}
	}
	binding := func(h document.Holder) []document.Binding {
		b := on("n1", 1, 10)
		b.Holder = h
		return []document.Binding{b}
	}
	note := func(node string, h document.Holder) document.Note {
		return document.Note{At: at(1), Node: node, BootID: "b", Holder: &h}
	}
	past := func(h document.Holder) *document.Conflict {
		c := conflict("x-1", detector.Resolved, 1, 5, append(binding(h), on("n2", 2, 20))...)
		return &c
	}
	web, other := &document.Pod{Name: "web"}, &document.Pod{Name: "other"}
	for _, test := range []struct {
		name         string
		n1, n2, want document.Holder // of notes
		own, theirs  []document.Binding
		conflict     *document.Conflict
	}{
		{name: "of its binding", n1: holder("", nil), n2: holder("", nil), own: binding(holder("ns", web)), want: holder("ns", web)},
		{name: "of its binding, whatever notes say", n1: holder("x", other), n2: holder("y", other), own: binding(holder("ns", web)), want: holder("ns", web)},
		{name: "of its node's binding", n1: holder("", nil), n2: holder("", nil), own: binding(holder("ns", web)), theirs: binding(holder("y", other)), want: holder("ns", web)},
		{name: "of another node's binding", n1: holder("", nil), n2: holder("", nil), theirs: binding(holder("ns", web)), want: holder("ns", web)},
		{name: "of a past conflict", n1: holder("", nil), n2: holder("", nil), conflict: past(holder("ns", web)), want: holder("ns", web)},
		{name: "of its node's note", n1: holder("ns", web), n2: holder("", nil), want: holder("ns", web)},
		{name: "of its node's note, without a pod", n1: holder("ns", nil), n2: holder("", nil), theirs: binding(holder("y", nil)), want: holder("ns", nil)},
		{name: "of another node's note, with a pod", n1: holder("", nil), n2: holder("ns", web), own: binding(holder("x", nil)), want: holder("ns", web)},
	} {
		first := document.Story{Network: "default", IP: ip, Bindings: test.own, Conflict: test.conflict, Notes: []document.Note{note("n1", test.n1), {At: at(2), Node: "n1"}}}
		second := document.Story{Network: "default", IP: ip, Bindings: test.theirs, Notes: []document.Note{note("n2", test.n2)}}
		permuted([]document.Answer{storiesFrom("n1", first), storiesFrom("n2", second)}, func(answers []document.Answer) {
			got := Stories(answers, rules)[0].Notes
			want := []document.Note{note("n1", test.want), note("n2", test.want), {At: at(2), Node: "n1"}}
			if diff := cmp.Diff(want, got, compareAll); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", test.name, diff)
			}
		})
		// The answers are as before.
		if diff := cmp.Diff(note("n2", test.n2), second.Notes[0], compareAll); diff != "" {
			t.Errorf("%s: the note changed (-want +got):\n%s", test.name, diff)
		}
	}
	// Of a holder that nobody has a name of, a note says what its node knows.
	lone := document.Story{Network: "default", IP: ip, Notes: []document.Note{note("n2", holder("ns", nil))}}
	if got := Stories([]document.Answer{storiesFrom("n2", lone)}, rules)[0].Notes; len(got) != 1 || got[0].Holder.Netns != "ns" {
		t.Errorf("%+v", got)
	}
}
