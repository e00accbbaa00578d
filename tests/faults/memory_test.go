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
// grown beyond reason.
func (s *testCluster) survived(before map[*node]int) {
	s.Helper()
	var text []string
	for n, now := range s.memory() {
		text = append(text, fmt.Sprintf("%s %d → %d", n.ShortName(), before[n], now))
		if now > maxResident || now-before[n] > maxGrowth {
			s.Errorf("%s grew from %d to %d MiB", n.ShortName(), before[n], now)
		}
		_, err := n.agent.Client.Status(s.Context())
		s.Do(err)
	}
	s.Logf("MiB: %s", strings.Join(text, ", "))
}
