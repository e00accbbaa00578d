package faults

import (
	"fmt"
	"strings"
)

// maxResident is what an agent of a small cluster may have in memory while it is under attack, in MiB.
const maxResident = 100

// memory is what each agent has in memory, in MiB.
func (s *testCluster) memory() map[*node]int {
	s.Helper()
	all := make(map[*node]int)
	for _, n := range s.nodes {
		all[n] = s.Usage(n.agent.Process).RSS >> 20
	}
	return all
}

// survived fails the test unless all agents are the ones that were there, and never had too much in memory.
func (s *testCluster) survived(before map[*node]int) {
	s.Helper()
	var text []string
	for _, n := range s.nodes {
		u := s.Usage(n.agent.Process)
		most := u.Peak >> 20
		text = append(text, fmt.Sprintf("%s %d → %d (at most %d)", n.ShortName(), before[n], u.RSS>>20, most))
		if most > maxResident {
			s.Errorf("%s had up to %d MiB", n.ShortName(), most)
		}
		_, err := n.agent.Client.Status(s.Context())
		s.Do(err)
	}
	s.Logf("MiB: %s", strings.Join(text, ", "))
}
