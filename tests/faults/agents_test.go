package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// kill kills an agent whose node's pods keep their duplicates.
func (s *testCluster) kill() {
	dead, other := s.nodes[1], s.nodes[7]
	d, three := s.duplicate(dead, other), s.duplicate(other, dead, s.nodes[3])
	s.waitFound(d, d.began, patience)
	s.waitFound(three, three.began, patience)
	raised := s.raised(other)
	s.waitSaved(d, three)
	s.Do(dead.agent.Kill())
	s.gone(dead, "dead")
	eventually(s.T, patience, "holders marked unreachable", func() error {
		conflicts, err := other.agent.Client.Conflicts(s.Context(), false)
		if err != nil {
			return err
		}
		for _, c := range conflicts {
			for _, h := range c.Holders {
				if h.Unreachable != (h.Node == dead.ShortName()) {
					return fmt.Errorf("%v of %s: unreachable is %t", c.IP, h.Node, h.Unreachable)
				}
			}
		}
		return nil
	})
	// One who comes now finds the living, and suspects.
	late := s.duplicate(other, s.nodes[5])
	s.waitFound(late, late.began, patience)
	raised += float64(len(late.ips))
	s.startSuccessor(dead)
	s.waitAllMembers()
	s.assertUnchanged(late)
	s.assertRestored(d, three)
	eventually(s.T, patience+healPause, "holders reachable again", func() error {
		conflicts, err := other.agent.Client.Conflicts(s.Context(), false)
		if err != nil {
			return err
		}
		for _, c := range conflicts {
			if i := slices.IndexFunc(c.Holders, func(b lab.Binding) bool { return b.Unreachable }); i >= 0 {
				return fmt.Errorf("%v of %s is unreachable", c.IP, c.Holders[i].Node)
			}
		}
		return nil
	})
	if got := s.raised(other); got != raised {
		s.Errorf("conflicts raised at %s: got %v, want %v", other.ShortName(), got, raised)
	}
	if got := s.raised(dead); got != 0 {
		s.Errorf("conflicts raised by the successor at %s: got %v, want 0", dead.ShortName(), got)
	}
}

// gone waits until all other nodes list a node's agent in this state.
func (s *testCluster) gone(n *node, state string) {
	s.Helper()
	ctx, cancel := lab.WithTimeout(s.Context(), healTime)
	defer cancel()
	for _, other := range s.except(n) {
		s.Do(other.agent.WaitNodes(ctx, n.ShortName()+" "+state, func(all []lab.Member) bool {
			return slices.ContainsFunc(all, func(m lab.Member) bool { return m.Name == n.ShortName() && m.State == state })
		}))
	}
}

// raised is how many conflicts an agent has raised since it started.
func (s *testCluster) raised(n *node) (sum float64) {
	s.Helper()
	m, err := n.agent.Scrape(s.Context())
	s.Do(err)
	for series, value := range m {
		if strings.HasPrefix(series, "dupip_conflicts_total") {
			sum += value
		}
	}
	return sum
}

// restart ends all agents, in order or not, and starts them again in another order, while
// there are duplicates everywhere.
func (s *testCluster) restart() {
	var all []*duplicate
	for i := range s.nodes {
		d := s.duplicate(s.nodes[i], s.nodes[(i+1)%len(s.nodes)])
		s.waitFound(d, d.began, patience)
		all = append(all, d)
	}
	ends := []func(*lab.Agent) error{(*lab.Agent).Stop, (*lab.Agent).Kill}
	s.waitSaved(all...)
	for round := range 3 {
		down, up := shuffled(s.nodes), shuffled(s.nodes)
		if round == 0 {
			// One after the other, as a DaemonSet does it.
			for _, n := range down {
				s.Do(ends[rand.IntN(2)](n.agent))
				s.startSuccessor(n)
			}
		} else {
			for _, n := range down {
				s.Do(ends[round-1](n.agent))
			}
			for _, n := range up {
				s.startSuccessor(n)
			}
		}
		s.waitAllMembers()
		met := time.Now()
		s.assertRestored(all...)
		s.Logf("round %d: all conflicts verified again %.1f s after all agents saw each other", round, time.Since(met).Seconds())
		s.waitSaved(all...)
		s.audit()
	}
	for _, d := range all {
		for _, n := range d.nodes() {
			eventually(s.T, patience+healPause, "all holders answer again at "+n.ShortName(), func() error {
				conflicts, err := n.agent.Client.Conflicts(s.Context(), false)
				for _, c := range conflicts {
					if slices.ContainsFunc(c.Holders, func(b lab.Binding) bool { return b.Unreachable }) {
						err = errors.Join(err, fmt.Errorf("%v has unreachable holders", c.IP))
					}
				}
				return err
			})
		}
	}
	s.assertUnchanged(all...)
	for _, n := range s.nodes {
		if got := s.raised(n); got != 0 {
			s.Errorf("conflicts raised by the successor at %s: got %v, want 0", n.ShortName(), got)
		}
	}
}

func shuffled(nodes []*node) []*node {
	nodes = slices.Clone(nodes)
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}
