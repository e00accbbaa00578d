package faults

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// Two nodes by the name of one: clones of a machine, or a wrong flag.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	s := newTestCluster(t, 4)
	first := s.nodes[1]
	second := &node{Node: s.Node("")}
	second.name = first.ShortName()
	second.agent = s.Agent(second.Node, append(second.ClusterFlags(), "--node-name", second.name)...)
	second.watch = s.Watch(second.agent)
	s.nodes = append(s.nodes, second)
	s.waitAllMembers()
	began := time.Now()

	// They are two all the same.
	d := s.duplicate(first, second)
	s.Logf("a duplicate between the two: found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	// No order names either of them, from the first moment on.
	d = s.duplicate(second, s.nodes[3])
	s.waitFound(d, d.began, patience)
	eventually(s.T, patience, "the judgement", func() error {
		out, err := s.nodes[3].agent.Client.Get(s.Context(), "/v1/conflicts", "cluster=1")
		if err != nil {
			return err
		}
		defer out.Close()
		text, err := io.ReadAll(out)
		if err != nil {
			return err
		}
		c, err := lab.ReadJudged(text, d.ips[0])
		if err != nil {
			return err
		}
		if cause := c.Judgement.Cause; cause != "coming" && cause != "namesakes" {
			return fmt.Errorf("the cause is %s", cause)
		}
		if c.Judgement.Orders() {
			s.Errorf("two machines have the name, and there are orders: %+v", c.Judgement.Steps)
		}
		return nil
	})
	d = s.duplicate(second, s.nodes[3], first)
	s.waitFound(d, d.began, patience)

	for _, n := range s.nodes {
		s.waitProblem(n.agent, healTime, first.ShortName(), "name")
		// While one of them is considered dead there are none.
		eventually(s.T, healTime, "namesakes", func() error { return s.namesakes(n, 2) })
		eventually(s.T, healTime, "dupip_gossip_namesakes at "+n.ShortName(), func() error {
			m, err := n.agent.Scrape(s.Context())
			if got := m["dupip_gossip_namesakes"]; err == nil && got != 2 {
				err = fmt.Errorf("it is %v, want 2", got)
			}
			return err
		})
	}
	s.Logf("all nodes report it after %.1f s", time.Since(began).Seconds())
	for _, n := range s.nodes {
		s.logs(n.agent, logTime, first.ShortName(), "name")
	}
	s.audit()
	s.end(s.duplicates...)

	// The first one's machine is lost. Its successor has its name and pods, not its address.
	lost := s.pod(first, lab.Routed, s.addrs()...)
	s.Do(second.agent.Stop(), first.Disconnect(), first.agent.Kill(), lost.Delete())
	s.nodes = slices.DeleteFunc(s.nodes, func(n *node) bool { return n == first || n == second })
	s.waitAllMembers()
	third := &node{Node: s.Node(""), name: first.ShortName()}
	third.agent = s.Agent(third.Node, append(third.ClusterFlags(), "--node-name", third.name)...)
	third.watch = s.Watch(third.agent)
	s.nodes = append(s.nodes, third)
	s.pod(third, lab.Routed, lost.Addrs()...)
	s.waitAllMembers()
	s.holdsFor(5*time.Second, s.audit)
	for _, n := range s.nodes {
		s.Do(s.namesakes(n, 0))
		s.waitNoProblem(n.agent, healTime)
	}
}

// namesakes returns an error unless an agent calls just this many members namesakes.
func (s *testCluster) namesakes(n *node, want int) error {
	members, err := n.agent.Client.Members(s.Context())
	got := 0
	for _, m := range members {
		if m.Namesake {
			got++
		}
	}
	if err == nil && got != want {
		err = fmt.Errorf("namesakes at %s: got %d, want %d: %+v", n.ShortName(), got, want, members)
	}
	return err
}
