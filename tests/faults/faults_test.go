package faults

import (
	"testing"
	"time"
)

// Faults that a cluster of eight gets over, one after the other.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newTestCluster(t, 8)
	s.part(t, "one node is cut off for 10 s", func(s *testCluster) {
		away := s.nodes[3]
		s.cut(10*time.Second, away.Disconnect, away.Reconnect, nil, s.except(away), []*node{away})
	})
	s.part(t, "the cluster is cut in halves", func(s *testCluster) {
		left, right := s.nodes[:4], s.nodes[4:]
		var heal func()
		s.cut(15*time.Second,
			func() error { heal = s.InjectFaults(between(left, right)...); return nil },
			func() error { heal(); return nil },
			nil, left, right)
	})
	s.part(t, "one direction between two nodes is cut", (*testCluster).oneWay)
	s.part(t, "UDP is blocked, TCP passes", (*testCluster).noUDP)
	s.part(t, "5 % of all packets are lost", (*testCluster).loss)
	s.part(t, "packets are forged without the key", func(s *testCluster) { s.withstandForgery(s.Node("rogue")) })
	s.part(t, "an agent is killed", (*testCluster).kill)
	s.part(t, "all agents end and begin again", (*testCluster).restart)
}
