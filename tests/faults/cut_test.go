package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// A cut that lasts longer than memberlist remembers.
func TestLongCut(t *testing.T) {
	t.Parallel()
	s := newTestCluster(t, 8)
	away := s.nodes[:1] // which is also the one that all others join
	rest := s.except(away...)
	var heal func()
	s.part(t, "one node is cut off for 100 s", func(s *testCluster) {
		// Made before, and again on another node as if the first one had been given up.
		moved := s.duplicate(away...)
		s.cut(100*time.Second,
			func() error { heal = s.InjectFaults(between(away, rest)...); return nil },
			func() error { heal(); return nil },
			func() {
				s.Logf("the node reports unacknowledged leases after %.1f s",
					s.waitProblem(away[0].agent, lab.Patience(20*time.Second), "not acknowledged").Seconds())
				s.Logf("it reports that it is alone after %.1f s more",
					s.waitProblem(away[0].agent, lab.Patience(40*time.Second), "is cut off from the others").Seconds())
				s.logs(away[0].agent, logTime, "is cut off from the others")
				last := rest[len(rest)-1]
				s.waitDead(last, away[0])
				s.join(moved, last)
			},
			away, rest)
		s.waitAway(moved)
	})
}

// waitDead waits until a node's agent takes another one for dead.
func (s *testCluster) waitDead(at, dead *node) {
	s.Helper()
	s.Eventually("the end of "+dead.ShortName()+" as "+at.ShortName()+" sees it", func() error {
		members, err := at.agent.Client.Members(s.Context())
		if err != nil || slices.ContainsFunc(members, func(m lab.Member) bool { return m.Name == dead.ShortName() && m.State == "dead" }) {
			return err
		}
		return fmt.Errorf("there are %+v", members)
	})
}

// waitAway waits until the agents of a duplicate's nodes say that the newer pod came while the nodes had lost each other: if
// the other node was given up meanwhile, the elder pod is its orphan, and the newer one is right.
func (s *testCluster) waitAway(d *duplicate) {
	s.Helper()
	for _, n := range d.nodes() {
		s.Eventually("the judgement on "+n.ShortName(), func() error {
			out, err := n.agent.CLI(s.Context(), "conflicts", "--ip", d.ips[0].String(), "-o", "json")
			if err != nil {
				return err
			}
			c, err := lab.ReadJudged([]byte(out), d.ips[0])
			if err != nil {
				return err
			}
			newer := d.holders[1].pod.Name
			if j := c.Judgement; j.Cause != "away" || j.Confidence != "open" || j.Orders() || !strings.Contains(j.Short, "could not reach each other when netns "+newer) ||
				!slices.ContainsFunc(j.Steps, func(s lab.Step) bool { return strings.HasPrefix(s.Command, "kubectl get pods ") && s.If == "" }) {
				return fmt.Errorf("there is %+v", *j)
			}
			return nil
		})
	}
}

// between are the faults that cut all of one side off from all of the other.
func between(left, right []*node) []lab.Fault {
	var faults []lab.Fault
	for _, a := range left {
		for _, b := range right {
			faults = append(faults, lab.Fault{From: a.Node, To: b.Node}, lab.Fault{From: b.Node, To: a.Node})
		}
	}
	return faults
}

// cut splits the cluster in two parts for a time. Afterwards all nodes must know what happened
// meanwhile, on either side and across.
func (s *testCluster) cut(lasts time.Duration, cut, heal func() error, meanwhile func(), left, right []*node) {
	s.Helper()
	l, r := left[len(left)-1], right[len(right)-1]
	// To stay; and to end, by a pod on either side.
	began := time.Now()
	stays, leftGoes, rightGoes := s.duplicate(l, r), s.duplicate(r, l), s.duplicate(l, r)
	before := []*duplicate{stays, leftGoes, rightGoes}
	for _, d := range before {
		s.waitFound(d, d.began, patience)
	}
	s.Logf("before the cut: all found after %.1f s", time.Since(began).Seconds())
	s.Do(cut())
	end := time.Now().Add(lasts)
	across := []*duplicate{s.duplicate(l, r), s.duplicate(right[0], left[0])}
	// Where a part is one node, its agent finds what is on that node alone.
	for _, inside := range []*duplicate{s.duplicate(left[0], l), s.duplicate(right[0], r)} {
		s.Logf("inside one part: found after %.1f s", s.waitFound(inside, inside.began, patience).Seconds())
	}
	s.delete(leftGoes, rightGoes)
	if meanwhile != nil {
		meanwhile()
	}
	s.holdsFor(time.Until(end), func() { s.assertUnchanged(stays) })
	s.Do(heal())
	healed := time.Now()
	for _, d := range across {
		s.Logf("across the cut: found %.1f s after the heal", s.waitFound(d, healed, healTime).Seconds())
	}
	s.waitAllMembers()
	s.Logf("whole %.1f s after the heal", time.Since(healed).Seconds())
	s.waitResolved(healTime, leftGoes, rightGoes)
	s.Logf("deleted during the cut: over %.1f s after the heal", time.Since(healed).Seconds())
	s.assertUnchanged(stays)
}
