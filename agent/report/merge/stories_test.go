package merge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

func storiesFrom(node string, stories ...detector.Story) cluster.Answer {
	return cluster.Answer{Member: member(node), Document: cluster.Document{Stories: stories}}
}

// outline is a story in a few lines.
func outline(s Story) []string {
	lines := []string{fmt.Sprintf("%s %s: %s", s.Key.Network, strings.Join(s.Nodes, ","), s.Verdict)}
	for _, v := range s.Verdicts {
		lines = append(lines, strings.Join(v.Nodes, ",")+" says "+v.Text)
	}
	if s.Conflict != nil {
		lines = append(lines, summary([]detector.Conflict{*s.Conflict})...)
	}
	for _, b := range s.Bindings {
		lines = append(lines, fmt.Sprintf("%s:%d", b.Holder.ID.Node, b.Holder.ID.Netns))
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
	notes := func(texts ...string) []detector.Note {
		var list []detector.Note
		for _, text := range texts {
			var second int
			fmt.Sscanf(text, "%d", &second)
			list = append(list, detector.Note{At: at(second), Text: text})
		}
		return list
	}
	story := func(verdict string, c *detector.Conflict, n []detector.Note, bindings ...detector.Binding) detector.Story {
		return detector.Story{Key: key("10.0.0.1"), Verdict: verdict, Conflict: c, Notes: n, Bindings: bindings}
	}
	shared := func(s detector.Story) detector.Story {
		s.Key = key("10.0.0.53")
		return s
	}
	local := func(s detector.Story) detector.Story {
		s.Key.Network = "docker0"
		return s
	}
	const one = "one live holder: not a conflict"
	hostA, hostB := a, b
	hostA.Evidence, hostB.Evidence = detector.Host, detector.Host
	claimA, claimB, forwarder := a, b, b
	claimA.Evidence, claimB.Evidence, forwarder.Evidence = detector.Claimed, detector.Claimed, detector.Forwarded
	for _, test := range []struct {
		name    string
		answers []cluster.Answer
		want    [][]string
	}{
		{
			"agreed",
			[]cluster.Answer{
				storiesFrom("n1", story("a conflict", &open, notes("10 seen", "22 answered"), a, b)),
				storiesFrom("n2", story("a conflict", &open, notes("9 before", "20 seen"), b, a)),
				storiesFrom("n3"),
			},
			[][]string{{
				"default n1/b,n2/b: a conflict", "x-1 confirmed cross-node 20 n1:1 n2:2", "n1/b:1", "n2/b:2",
				"n2/b notes 9 before", "n1/b notes 10 seen", "n2/b notes 20 seen", "n1/b notes 22 answered",
			}},
		},
		{
			"the verdict of the node that knows most comes first",
			[]cluster.Answer{
				storiesFrom("n3", story("no live holder: not a conflict", nil, nil)),
				storiesFrom("n1", story("being verified", &suspicion, nil, a, b)),
				storiesFrom("n2", story("a conflict", &open, nil, b, a)),
			},
			[][]string{{
				"default n1/b,n2/b,n3/b: a conflict", "n1/b says being verified", "n2/b says a conflict", "n3/b says no live holder: not a conflict",
				"x-1 confirmed cross-node 20 n1:1 n2:2", "n1/b:1", "n2/b:2",
			}},
		},
		{
			"not matched yet",
			[]cluster.Answer{storiesFrom("n1", story(one, &past, nil, a)), storiesFrom("n2", story(one, nil, nil, b))},
			[][]string{{
				"default n1/b,n2/b: two live holders on different nodes, which do not know of each other yet, or one did not answer: no conflict is known",
				"x-0 resolved cross-node 1-5 n1:1 n2:2", "n1/b:1", "n2/b:2",
			}},
		},
		{
			"shared addresses and nodes' own may have two",
			[]cluster.Answer{
				storiesFrom("n1", shared(story(one, nil, nil, a)), story("own", nil, nil, hostA)),
				storiesFrom("n2", shared(story(one, nil, nil, b)), story("own", nil, nil, hostB)),
			},
			[][]string{
				{"default n1/b,n2/b: two nodes have it as their own address, which dupip does not count against each other: not a conflict", "n1/b:1", "n2/b:2"},
				{"default n1/b,n2/b: two live holders, but declared shared: not a conflict", "n1/b:1", "n2/b:2"},
			},
		},
		{
			"claims alone are none",
			[]cluster.Answer{storiesFrom("n1", story(one, nil, nil, claimA)), storiesFrom("n2", story(one, nil, nil, claimB))},
			[][]string{{"default n1/b,n2/b: two holders claim it and have it on other devices: not a conflict", "n1/b:1", "n2/b:2"}},
		},
		{
			"who only forwards is no holder",
			[]cluster.Answer{storiesFrom("n1", story(one, nil, nil, a)), storiesFrom("n2", story("known only as forwarded by r: not counted", nil, nil, forwarder))},
			[][]string{{
				"default n1/b,n2/b: " + one, "n1/b says " + one, "n2/b says known only as forwarded by r: not counted", "n1/b:1", "n2/b:2",
			}},
		},
		{
			"a node knows of a third holder that another does not know yet",
			[]cluster.Answer{storiesFrom("n1", story("a conflict", &open, nil, a, b)), storiesFrom("n3", story(one, nil, nil, on("n3", 3, 30)))},
			[][]string{{
				"default n1/b,n3/b: a conflict; live holders by the reports of all nodes: 3", "n1/b says a conflict", "n3/b says " + one,
				"x-1 confirmed cross-node 20 n1:1 n2:2", "n1/b:1", "n2/b:2", "n3/b:3",
			}},
		},
		{
			"networks of one node",
			[]cluster.Answer{storiesFrom("n1", local(story(one, nil, nil, a))), storiesFrom("n2", local(story(one, nil, nil, b)))},
			[][]string{{"docker0 n1/b: " + one, "n1/b:1"}, {"docker0 n2/b: " + one, "n2/b:2"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			permuted(test.answers, func(answers []cluster.Answer) {
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
