package faults

import (
	"net/netip"
	"slices"

	"github.com/dupip/dupip/tests/lab"
)

// audit checks all events of the agents so far: only real duplicates were confirmed, at the nodes of
// their holders, once each, and none ended too early.
func (s *testCluster) audit() {
	s.Helper()
	for _, n := range s.nodes {
		for _, e := range n.watch.Events() {
			text := lab.FormatEvents([]lab.Event{e})
			d := s.duplicateOf(e.Conflict.IP)
			switch {
			case d == nil:
				if e.Type == "confirmed" || e.Type == "resolved" {
					s.Errorf("false alarm at %s: %s", n.ShortName(), text)
				}
			case !slices.Contains(d.nodes(), n):
				s.Errorf("no holder is on %s, which reported: %s", n.ShortName(), text)
			case e.Type == "confirmed":
				s.knows(d, n, e.Conflict)
			case e.Type == "resolved":
				if d.ended.IsZero() || e.Received.Before(d.ended) {
					s.Errorf("it ended too early at %s: %s", n.ShortName(), text)
				}
			}
		}
	}
}

// duplicateOf returns the duplicate that an address belongs to, nil if it has one holder.
func (s *testCluster) duplicateOf(ip netip.Addr) *duplicate {
	for _, d := range s.duplicates {
		if slices.Contains(d.ips, ip) {
			return d
		}
	}
	return nil
}
