package faults

import (
	"testing"
	"time"
)

// Faults that a cluster of eight gets over, one after the other.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t, 8)
	s.chapter(t, "one node is cut off for 10 s", func(s *site) {
		away := s.nodes[3]
		s.cut(10*time.Second, away.Cut, away.Join, nil, s.except(away), []*node{away})
	})
	s.chapter(t, "the cluster is cut in halves", func(s *site) {
		left, right := s.nodes[:4], s.nodes[4:]
		var mend func()
		s.cut(15*time.Second,
			func() error { mend = s.Break(between(left, right)...); return nil },
			func() error { mend(); return nil },
			nil, left, right)
	})
	s.chapter(t, "one direction between two nodes is cut", (*site).oneWay)
	s.chapter(t, "UDP is blocked, TCP passes", (*site).noUDP)
	s.chapter(t, "5 % of all packets are lost", (*site).loss)
	s.chapter(t, "packets are forged", (*site).forged)
	s.chapter(t, "an agent is killed", (*site).kill)
	s.chapter(t, "all agents end and begin again", (*site).restart)
}
