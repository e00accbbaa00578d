package merge

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/internal/schedule"
)

// permuted calls f with all orders of the answers.
func permuted(answers []document.Answer, f func([]document.Answer)) {
	var permute func(n int)
	permute = func(n int) {
		if n == len(answers) {
			f(answers)
			return
		}
		for i := n; i < len(answers); i++ {
			answers[n], answers[i] = answers[i], answers[n]
			permute(n + 1)
			answers[n], answers[i] = answers[i], answers[n]
		}
	}
	permute(0)
}

// What a conflict that ended for one node is to one that goes on for another.
func TestEndedOnOneSide(t *testing.T) {
	const suspected, confirmed, resolved = detector.Suspected, detector.Confirmed, detector.Resolved
	a1, a2, b1, b2, c1 := on("n1", 1, 10), on("n1", 2, 11), on("n2", 3, 12), on("n2", 4, 50), on("n3", 5, 60)
	gone, later := b1, b1
	gone.Gone, later.LastSeen = true, at(31)
	for _, test := range []struct {
		name    string
		answers []document.Answer
		want    []string
	}{
		{
			"the holder of one node died, those of the other are live",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a1, a2)), from("n2", conflict("x-1", resolved, 20, 30, a1, b1, a2)), from("n3")},
			[]string{"x-1 confirmed same-node 20 n1:1 n1:2"},
		},
		{
			"and it has a successor",
			[]document.Answer{
				from("n1", conflict("x-1", confirmed, 20, 0, a1, a2, b2)),
				from("n2", conflict("x-2", confirmed, 51, 0, a1, a2, b2), conflict("x-1", resolved, 20, 30, a1, b1, a2)),
			},
			[]string{"x-1 confirmed cross-node 20 n1:1 n1:2 n2:4"},
		},
		{
			"and they number them differently",
			[]document.Answer{
				from("n1", conflict("x-7", confirmed, 20, 0, a1, a2, b2)),
				from("n2", conflict("x-2", confirmed, 51, 0, a1, a2, b2), conflict("x-1", resolved, 19, 30, a1, b1, a2)),
			},
			[]string{"x-1 confirmed cross-node 19 n1:1 n1:2 n2:4"},
		},
		{
			"it began before the other's",
			[]document.Answer{
				from("n1", conflict("x-1", confirmed, 20, 0, a1, a2)),
				from("n2", conflict("x-1", resolved, 2, 30, a1, b1, a2, b2)),
			},
			[]string{"x-1 confirmed same-node 2 n1:1 n1:2"},
		},
		{
			"two successors, of which only one node has seen both",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 20, 30, a1, b1), conflict("x-2", confirmed, 31, 0, a2, b1)),
				from("n2", conflict("x-1", confirmed, 20, 0, b1, a2)),
			},
			[]string{"x-1 confirmed cross-node 20 n1:2 n2:3"},
		},
		{
			"it ended on all, and began again on one",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 20, 30, a1, b1), conflict("x-2", suspected, 50, 0, a1, a2)),
				from("n2", conflict("x-1", resolved, 20, 31, a1, b1)),
			},
			[]string{"x-2 suspected same-node 50 n1:1 n1:2", "x-1 resolved cross-node 20-31 n1:1 n2:3"},
		},
		{
			"it ended on all, and began again at once",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 20, 30, a1, b1), conflict("x-2", confirmed, 30, 0, a1, b1)),
				from("n2", conflict("x-4", resolved, 20, 32, a1, b1), conflict("x-5", confirmed, 33, 0, a1, b1)),
			},
			[]string{"x-2 confirmed cross-node 30 n1:1 n2:3", "x-1 resolved cross-node 20-32 n1:1 n2:3"},
		},
		{
			"two that ended, the second at once after the first, numbered differently",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 10, 21, a1, b1), conflict("x-2", resolved, 22, 40, a1, b1)),
				from("n2", conflict("x-4", resolved, 9, 19, a1, b1), conflict("x-5", resolved, 20, 41, a1, b1)),
			},
			[]string{"x-5 resolved cross-node 20-41 n1:1 n2:3", "x-4 resolved cross-node 9-21 n1:1 n2:3"},
		},
		{
			"two that ended, one after the other",
			[]document.Answer{
				from("n1", conflict("x-1", resolved, 1, 5, a1, b1), conflict("x-2", resolved, 20, 25, a1, c1)),
				from("n2", conflict("x-1", resolved, 2, 6, a1, b1)),
				from("n3", conflict("x-1", resolved, 21, 25, a1, c1)),
			},
			[]string{"x-2 resolved cross-node 20-25 n1:1 n3:5", "x-1 resolved cross-node 1-6 n1:1 n2:3"},
		},
		{
			"a chain that an answer joins late",
			[]document.Answer{
				from("n1", conflict("x-1", confirmed, 20, 0, a1, a2)), from("n3", conflict("x-3", confirmed, 21, 0, c1, b2)),
				from("n2", conflict("x-2", confirmed, 22, 0, a1, b2)),
			},
			[]string{"x-1 confirmed cross-node 20 n1:1 n1:2 n2:4 n3:5"},
		},
		{
			"its own node has not answered, and one of two says that it does not answer",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a1, gone)), from("n3", conflict("x-1", confirmed, 20, 0, c1, b1))},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:3? n3:5"},
		},
		{
			"it died, and only its own node knows",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a1, b1)), from("n2", conflict("x-1", resolved, 20, 30, a1, b1))},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:3?"},
		},
		{
			"it ended for its own node, but was seen since then",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a1, later)), from("n2", conflict("x-1", resolved, 20, 30, a1, b1))},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:3"},
		},
		{
			"its own node says that it answers",
			[]document.Answer{from("n1", conflict("x-1", confirmed, 20, 0, a1, gone)), from("n2", conflict("x-1", confirmed, 20, 0, a1, b1))},
			[]string{"x-1 confirmed cross-node 20 n1:1 n2:3"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			permuted(test.answers, func(answers []document.Answer) {
				got, _ := Conflicts(answers, rules)
				if diff := cmp.Diff(test.want, summary(got)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				for _, c := range got {
					if (c.State == suspected) != c.ConfirmedAt.IsZero() {
						t.Errorf("%s was confirmed at %v", c.State, c.ConfirmedAt)
					}
				}
			})
		})
	}
}

// history is what some nodes remember of one address, and when each pod loses it: pods come and go, each node's record begins when it
// has one of two live holders, and it ends when it has none or they are fewer than two. A node is late with the pods of others, and may not
// know of a death. One is cut off for a while: it and the others do not know each other's holders then.
func history(random *rand.Rand) (answers []document.Answer, deaths map[detector.HolderID]time.Time) {
	const nodes, ends = 4, 40
	type life struct {
		document.Binding
		from, to int
	}
	var pods []life
	deaths = make(map[detector.HolderID]time.Time)
	for n := range 2 + random.IntN(5) {
		from := 1 + random.IntN(ends)
		b := on(fmt.Sprint("n", random.IntN(nodes)), uint64(n+1), from)
		b.Interface = fmt.Sprint("veth", n)
		pods = append(pods, life{b, from, from + 1 + random.IntN(ends)})
		deaths[b.ID()] = at(pods[n].to)
	}
	lost, leaves := fmt.Sprint("n", random.IntN(nodes)), random.IntN(ends)
	returns := leaves + random.IntN(ends-leaves+1)
	for n := range nodes {
		name := fmt.Sprint("n", n)
		late := random.IntN(3)
		var records []document.Conflict
		var current *document.Conflict
		for now := 1; now <= ends; now++ {
			var live []document.Binding
			local := false
			for _, p := range pods {
				cut := (name == lost) != (p.Node == lost) && leaves <= now && now < returns
				late := late
				if p.Node == name {
					late = 0
				}
				if p.from+late <= now && now < p.to+late && !cut {
					p.LastSeen = at(now - late) // as that node was told
					if p.Facts = truth(p.Binding); p.Node != name {
						p.Facts = &document.Facts{Behind: document.BehindForgotten} // which it cannot know
					}
					p.Unreachable, p.Gone = random.IntN(20) == 0, random.IntN(20) == 0
					live = append(live, p.Binding)
					local = local || p.Node == name
				}
			}
			switch holds := local && len(live) > 1; {
			case holds && current == nil:
				records = append(records, conflict(fmt.Sprintf("x-%d", len(records)+1+n%2), detector.Suspected, now, 0, live...))
				current = &records[len(records)-1]
			case holds:
				for _, b := range current.Holders {
					if !slices.ContainsFunc(live, func(l document.Binding) bool { return l.ID() == b.ID() }) {
						b.Gone = true
						live = append(live, b)
					}
				}
				current.State, current.Holders = detector.Confirmed, live
				current.ConfirmedAt = at(now)
				to := random.IntN(len(live))
				current.Routes = []document.Route{{Node: name, BootID: "b", To: document.ToHolder, Holder: &to, Device: live[to].Interface}}
			case current != nil:
				current.State, current.ResolvedAt = detector.Resolved, at(now)
				for i := range current.Holders {
					current.Holders[i].Gone = false // as the detector has it
				}
				current = nil
			}
		}
		answer := from(name, records...)
		answer.Self, answer.At = n == 0, at(ends)
		if random.IntN(5) > 0 {
			answers = append(answers, answer)
		}
	}
	return answers, deaths
}

// truth is what a node knows of its own holder.
func truth(b document.Binding) *document.Facts {
	return &document.Facts{NetnsInode: 1000 + b.NetnsCookie}
}

// Laws of the merged view, over generated histories of which any nodes are missing: the live holders are those of the gravest open records
// that have the address, as far as their own nodes say so, else as the others say; no command is for a holder that is not live; one address has one open
// conflict. It does not matter in which order,
// how often and in which groups answers come, for the stories neither, nor which node asks. What a holder's own node says goes before what
// others say. A route leads to the holder that its node meant.
func TestLawsOfMerging(t *testing.T) {
	for seed := range uint64(401) {
		if seed == 400 {
			seed = 2162 // a node knows of a death by an earlier conflict than the one that others have
		}
		random := rand.New(rand.NewPCG(34, seed))
		all, deaths := history(random)
		for missing := range 1 << len(all) {
			var answers []document.Answer
			for n, a := range all {
				if missing>>n&1 == 0 {
					answers = append(answers, a)
				}
			}
			conflicts, stories := views(answers)
			checkHolders(t, answers, conflicts, deaths)
			same := func(what string, answers []document.Answer) {
				if got, gotStories := views(answers); !reflect.DeepEqual(conflicts, got) || !reflect.DeepEqual(stories, gotStories) {
					t.Errorf("%s matters (-first +now):\n%s%s", what, cmp.Diff(conflicts, got, compareAll), cmp.Diff(stories, gotStories, compareAll))
				}
			}
			if missing == 0 {
				permuted(slices.Clone(answers), func(answers []document.Answer) { same("the order of the answers", answers) })
			}
			cut := random.IntN(len(answers) + 1)
			first, rest := answers[:cut], answers[cut:]
			same("how often they come", Join(slices.Concat(answers, answers)))
			same("how they are grouped", Join(slices.Concat(Join(slices.Concat(rest, first)), Join(first))))
			same("what they said before", Join(slices.Concat(earlier(answers), Join(slices.Concat(answers, earlier(rest))))))
			for n := range answers {
				asking := slices.Clone(answers)
				for i := range asking {
					asking[i].Self = i == n
				}
				if got, _ := Conflicts(asking, rules); !slices.Equal(identities(got), identities(conflicts)) {
					t.Errorf("who asks matters: %s has\n%v, want\n%v", asking[n].Node, identities(got), identities(conflicts))
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d, missing %b: %v", seed, missing, answers)
			}
		}
	}
}

// views are the conflicts and stories that answers make.
func views(answers []document.Answer) ([]document.Conflict, []document.Story) {
	conflicts, _ := Conflicts(answers, rules)
	return conflicts, Stories(storiesOf(answers), rules)
}

// earlier are older answers of the same nodes, which did not know the last conflict yet.
func earlier(answers []document.Answer) (list []document.Answer) {
	for _, a := range answers {
		a.At = a.At.Add(-time.Second)
		a.Conflicts = a.Conflicts[:max(len(a.Conflicts)-1, 0)]
		list = append(list, a)
	}
	return list
}

// identities describe conflicts by what must not depend on which node asks.
func identities(conflicts []document.Conflict) (list []string) {
	for _, c := range conflicts {
		line := fmt.Sprint(c.ID, " ", c.State, " ", c.SuspectedAt)
		for _, b := range c.Holders {
			line += fmt.Sprint(" ", b.ID(), b.Gone)
		}
		list = append(list, line)
	}
	return list
}

// checkHolders checks who is live in merged conflicts, and what is to be done with whom.
func checkHolders(t *testing.T, answers []document.Answer, conflicts []document.Conflict, deaths map[detector.HolderID]time.Time) {
	top := detector.Suspected
	for _, a := range answers {
		for _, c := range a.Conflicts {
			if c.State == detector.Confirmed {
				top = c.State
			}
		}
	}
	said, owned, gone := make(map[detector.HolderID]bool), make(map[detector.HolderID]bool), make(map[detector.HolderID]bool)
	seen, ended := make(map[detector.HolderID]time.Time), make(map[detector.HolderID]time.Time) // at last; for its own node
	for _, own := range []bool{false, true} {
		for _, a := range answers {
			for _, c := range a.Conflicts {
				for _, b := range c.Holders {
					id := b.ID()
					switch {
					case (id.Node == a.NodeID()) != own:
					case c.State != detector.Resolved:
						said[id], owned[id], seen[id] = said[id] || c.State == top, own, schedule.Later(seen[id], b.LastSeen)
						gone[id] = b.Gone || !own && gone[id]
					case own:
						ended[id] = schedule.Later(ended[id], c.ResolvedAt)
					}
				}
			}
		}
	}
	want, live := make(map[detector.HolderID]bool), make(map[detector.HolderID]bool)
	open := slices.DeleteFunc(slices.Clone(conflicts), func(c document.Conflict) bool { return c.State == detector.Resolved })
	if len(open) > 1 {
		t.Errorf("%d open conflicts of one address", len(open))
	}
	for id := range said {
		over := top == detector.Confirmed && !owned[id] && seen[id].Before(ended[id])
		if said[id] && !gone[id] && !over {
			want[id] = true
		}
		if top == detector.Confirmed && !owned[id] && want[id] && ended[id].Equal(deaths[id]) {
			t.Errorf("%v is dead, as its own node knows", id)
		}
	}
	for _, c := range conflicts {
		for _, b := range c.Holders {
			if own := owned[b.ID()] && c.State != detector.Resolved; own && b.Facts == nil || b.Facts != nil && !reflect.DeepEqual(b.Facts, truth(b)) {
				t.Errorf("%v has the facts %+v, its own node says so: %t", b.ID(), b.Facts, own)
			}
			if c.State == detector.Resolved || b.Gone {
				continue
			}
			if live[b.ID()] {
				t.Errorf("%v is in two open conflicts", b.ID())
			}
			live[b.ID()] = true
		}
		for n, r := range c.Routes {
			if r.Holder == nil || c.Holders[*r.Holder].Interface != r.Device || slices.ContainsFunc(c.Routes[:n], func(o document.Route) bool { return o.Node == r.Node }) {
				t.Errorf("routes %+v to %v", c.Routes, c.Holders)
			}
		}
		if c.State != detector.Confirmed {
			continue
		}
		for _, v := range judge.Of(c, judge.Context{Now: at(1000)}).Holders {
			if id := c.Holders[v.Holder].ID(); !want[id] && (v.Verdict != document.Remove || v.Reason != document.ReasonGone) {
				t.Errorf("%+v is about %v, which is not live", v, id)
			}
		}
	}
	if diff := cmp.Diff(want, live); diff != "" {
		t.Errorf("live holders (-want +got):\n%s", diff)
	}
}

// storiesOf are the stories of the nodes that answered: each has its open record, else its last one.
func storiesOf(answers []document.Answer) (list []document.Answer) {
	for _, a := range answers {
		if len(a.Conflicts) == 0 {
			continue
		}
		last := a.Conflicts[len(a.Conflicts)-1]
		s := document.Story{Network: last.Network, IP: last.IP, Conflict: &last, Verdict: last.State.String()}
		for _, b := range last.Holders {
			s.Notes = append(s.Notes, document.Note{At: last.SuspectedAt, Node: a.Node, BootID: a.BootID, Holder: &b.Holder})
		}
		if last.State != detector.Resolved {
			s.Bindings = last.Holders
		}
		list = append(list, document.Answer{Node: a.Node, BootID: a.BootID, Self: a.Self, Stories: []document.Story{s}})
	}
	return list
}
