package faults

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// noUDP blocks gossip's datagrams between one node and the rest, while TCP passes: a
// firewall rule forgotten.
func (s *testCluster) noUDP() {
	isolated := s.nodes[5]
	before := s.duplicate(isolated, s.nodes[0])
	s.waitFound(before, before.began, patience)
	heal := s.InjectFaults(
		lab.Fault{UDP: lab.GossipPort, From: isolated.Node},
		lab.Fault{UDP: lab.GossipPort, To: isolated.Node},
	)
	minute := lab.Patience(time.Minute)
	s.Logf("the isolated node reports it after %.1f s", s.waitProblem(isolated.agent, minute, "UDP").Seconds())
	// Keepers are chosen by a hash: of 20 addresses each node keeps some, and is to
	// acknowledge those that are new.
	var many []netip.Addr
	for len(many) < 20 {
		many = append(many, s.addrs()...)
	}
	kept := s.pod(s.nodes[0], lab.Routed, many...)
	s.Logf("another one reports it after %.1f s more", s.waitProblem(s.nodes[0].agent, minute, "not acknowledged", isolated.ShortName()).Seconds())
	across, inside, rest := s.duplicate(isolated, s.nodes[6]), s.duplicate(isolated, isolated), s.duplicate(s.nodes[0], s.nodes[6])
	s.waitFound(inside, inside.began, patience)
	s.waitFound(rest, rest.began, patience)
	s.assertUnchanged(before)
	s.Do(kept.Delete())
	heal()
	healed := time.Now()
	s.Logf("across: found %.1f s after UDP passes again", s.waitFound(across, healed, healTime).Seconds())
	s.waitAllMembers()
	for _, n := range s.nodes {
		s.waitNoProblem(n.agent, healTime)
	}
	s.Logf("all problems ended %.1f s after", time.Since(healed).Seconds())
	s.assertUnchanged(before)
}
