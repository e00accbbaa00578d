package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietClock are wall clocks that are wrong, and jump.
var quietClock = []Scenario{
	{ID: "Q22", Want: Quiet, Nodes: 3, MaySuspect: true, Text: "the clock of one node is stepped, by an hour and back by two", Play: func(s *Stage) {
		stepped, other := s.Actors[0], s.Actors[1]
		program, err := lab.SteppableBinary()
		s.Do(err)
		s.Do(stepped.Agent.Stop())
		stepped.Node.Program = program
		s.Restart(stepped)
		s.WaitAllMembers()

		var healthy []*lab.Pod
		for i, a := range s.Actors {
			p := s.PodOn(a, fmt.Sprintf("healthy%d", i), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(22), a.Node.IPv6(22)}})
			s.Sees(p, p.Addrs()...)
			healthy = append(healthy, p)
		}
		// A real conflict stays what it is, and new ones are found.
		lasting := s.Addrs(lab.Routed, 22)
		s.duplicate("lasting", lasting, stepped, other)
		before := map[*Actor][]lab.Conflict{}
		for _, a := range []*Actor{stepped, other} {
			before[a] = s.confirmed(a, lasting)
		}
		found := slices.Clone(lasting)
		since := time.Now()
		for i, forward := range []bool{true, false, false} {
			s.Do(stepped.Agent.StepClock(forward))
			for _, p := range healthy {
				s.Talk(p, p.Addrs()...)
			}
			// A pod moves there and back.
			from, to := stepped, other
			for j := range 2 {
				p := s.PodOn(from, fmt.Sprintf("mover%d-%d", i, j), lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, byte(30+i))})
				s.Talk(p, p.Addrs()...)
				s.Sees(p, p.Addrs()...)
				s.Do(p.Delete())
				from, to = to, from
			}
			ips := s.Addrs(lab.Routed, byte(40+i))
			s.duplicate(fmt.Sprintf("new%d", i), ips, other, stepped)
			found = append(found, ips...)
			open, err := other.Agent.Client.Conflicts(s.Context(), false)
			s.Do(err)
			for _, c := range open {
				for _, h := range c.Holders {
					if age := time.Since(h.FirstSeen); age < -time.Second || age > 10*time.Minute {
						s.Errorf("%s of %s was seen first %v ago, by the clock of %s", h.Netns, h.Node, age, other.Node.ShortName())
					}
				}
			}
		}
		// The state on disk is of other times.
		s.Do(stepped.Agent.Kill())
		s.Restart(stepped)
		s.WaitAllMembers()
		for a, was := range before {
			for i, c := range s.confirmed(a, found)[:len(was)] {
				assertSame(s, was[i], c)
			}
			s.unchanged(a, since, was, a == stepped)
		}
	}},
}
