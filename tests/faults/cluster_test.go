package faults

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// testCluster is a cluster under faults; it records all events of its agents.
type testCluster struct {
	*lab.T
	nodes []*node

	pods       int
	duplicates []*duplicate
}

// node is a node with its agent, the last one, and the stream of its conflicts.
type node struct {
	*lab.Node
	agent *lab.Agent
	watch *lab.Watch
	// name is the node's name to the agent; empty is that in the lab.
	name string
}

// ShortName is the node's name to the agent.
func (n *node) ShortName() string { return cmp.Or(n.name, n.Node.ShortName()) }

// newTestCluster builds nodes with agents and waits until they see each other.
func newTestCluster(t *testing.T, nodes int, flags ...string) *testCluster {
	t.Helper()
	s := &testCluster{T: lab.NewT(t)}
	for _, a := range s.Cluster(nodes, flags...) {
		s.add(a)
	}
	return s
}

func (s *testCluster) add(a *lab.Agent) *node {
	s.Helper()
	n := &node{Node: a.Node, agent: a, watch: s.Watch(a)}
	s.nodes = append(s.nodes, n)
	return n
}

// part plays one part of a test, which must end as it began: all agents up, no duplicate. After a
// failure the test ends, because the state is unknown.
func (s *testCluster) part(t *testing.T, name string, play func(s *testCluster)) {
	t.Helper()
	passed := t.Run(name, func(t *testing.T) {
		whole := s.T
		s.T = &lab.T{Lab: s.Lab, TB: t}
		defer func() { s.T = whole }()
		began := time.Now()
		s.waitAllMembers()
		met := time.Now()
		play(s)
		played := time.Now()
		s.audit()
		s.end(s.duplicates...)
		// A part logs what it measures, not its total time.
		s.Logf("all agents were there after %.1f s, the part took %.1f s, the end of all duplicates %.1f s",
			met.Sub(began).Seconds(), played.Sub(met).Seconds(), time.Since(played).Seconds())
		s.audit()
	})
	if !passed {
		t.FailNow()
	}
}

// waitAllMembers waits until all agents see each other alive, and no more.
func (s *testCluster) waitAllMembers() { s.Helper(); s.waitMembers(s.nodes...) }

// waitMembers waits until each of the nodes' agents sees just these alive.
func (s *testCluster) waitMembers(nodes ...*node) {
	s.Helper()
	ctx, cancel := lab.WithTimeout(s.Context(), healTime)
	defer cancel()
	for _, n := range nodes {
		s.Do(n.agent.WaitMembers(ctx, len(nodes)))
	}
}

// startSuccessor starts another agent with the state and the socket of the last one, which has
// ended.
func (s *testCluster) startSuccessor(n *node, flags ...string) {
	s.Helper()
	n.agent = s.Successor(n.agent, flags...)
}

// pod makes a pod that a node's agent knows.
func (s *testCluster) pod(n *node, style lab.Style, ips ...netip.Addr) *lab.Pod {
	s.Helper()
	s.pods++
	p := s.Pod(n.Node, fmt.Sprintf("pod%d", s.pods), lab.PodOptions{Style: style, Addrs: ips})
	s.sees(n, p)
	return p
}

// sees waits until a node's agent knows a pod as the holder of its addresses.
func (s *testCluster) sees(n *node, p *lab.Pod) {
	s.Helper()
	ctx, cancel := lab.WithTimeout(s.Context(), patience)
	defer cancel()
	for _, ip := range p.Addrs() {
		_, err := n.agent.Client.WaitBinding(ctx, ip, func(b lab.Binding) bool {
			return b.Node == n.ShortName() && b.Netns == p.Name && (b.Evidence == "announced" || b.Evidence == "data")
		})
		s.Do(err)
	}
}

// addrs are an unused IPv4 and an unused IPv6 address.
func (s *testCluster) addrs() []netip.Addr {
	s.pods++
	home, last := s.nodes[s.pods/200], byte(2+s.pods%200)
	return []netip.Addr{home.RoutedIPv4(last), home.RoutedIPv6(last)}
}

// except are the nodes but for some.
func (s *testCluster) except(some ...*node) []*node {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(n *node) bool { return slices.Contains(some, n) })
}

// holdsFor fails the test unless cond stays true for a time.
func (s *testCluster) holdsFor(window time.Duration, cond func()) {
	s.Helper()
	for end := time.Now().Add(window); time.Now().Before(end) && !s.Failed(); time.Sleep(100 * time.Millisecond) {
		cond()
	}
}
