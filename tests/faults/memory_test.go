package faults

import (
	"fmt"
	"strings"
)

const (
	// maxResident is what an agent of a small cluster may have in memory while it is
	// under attack, and maxGrowth how much more than before; MiB.
	maxResident = 160
	maxGrowth   = 90
)

// memory is what each agent has in memory, in MiB.
func (s *testCluster) memory() map[*node]int {
	s.Helper()
	all := make(map[*node]int)
	for _, n := range s.nodes {
		all[n] = s.Usage(n.agent.Process).RSS >> 20
	}
	return all
}

// survived fails the test unless all agents are the ones that were there, and have not
// grown beyond reason, not even for a moment.
func (s *testCluster) survived(before map[*node]int) {
	s.Helper()
	var text []string
	for _, n := range s.nodes {
		u := s.Usage(n.agent.Process)
		now, most := u.RSS>>20, u.Peak>>20
		text = append(text, fmt.Sprintf("%s %d → %d (at most %d)", n.ShortName(), before[n], now, most))
		if most > maxResident || now-before[n] > maxGrowth {
			s.Errorf("%s grew from %d to %d MiB, at most %d", n.ShortName(), before[n], now, most)
		}
		_, err := n.agent.Client.Status(s.Context())
		s.Do(err)
	}
	s.Logf("MiB: %s", strings.Join(text, ", "))
}
