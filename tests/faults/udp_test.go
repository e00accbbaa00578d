package faults

import (
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// noUDP blocks gossip's datagrams between one node and the rest, while TCP passes: a
// firewall rule forgotten.
func (s *site) noUDP() {
	deaf := s.nodes[5]
	before := s.duplicate(deaf, s.nodes[0])
	s.found(before, before.began, patience)
	mend := s.Break(
		lab.Fault{UDP: lab.GossipPort, From: deaf.Node},
		lab.Fault{UDP: lab.GossipPort, To: deaf.Node},
	)
	minute := lab.Patience(time.Minute)
	s.Logf("the deaf node says so after %.1f s", s.says(deaf.agent, minute, "UDP").Seconds())
	s.Logf("another says so after %.1f s more", s.says(s.nodes[0].agent, minute, "UDP", deaf.ShortName()).Seconds())
	across, inside, rest := s.duplicate(deaf, s.nodes[6]), s.duplicate(deaf, deaf), s.duplicate(s.nodes[0], s.nodes[6])
	s.found(inside, inside.began, patience)
	s.found(rest, rest.began, patience)
	s.still(before)
	mend()
	healed := time.Now()
	s.Logf("across: found %.1f s after UDP passes again", s.found(across, healed, healTime).Seconds())
	s.together()
	for _, n := range s.nodes {
		s.content(n.agent, healTime)
	}
	s.Logf("nobody complains any more %.1f s after", time.Since(healed).Seconds())
	s.still(before)
}
