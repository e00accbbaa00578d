package scenarios

import (
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundApart are duplicates that begin while agents are disconnected, or their messages are lost.
var foundApart = []Scenario{
	{ID: "D12", Want: Found, Nodes: 3, Text: "it starts during a partition; from when the cable is back", Play: func(s *Stage) {
		olderPods, newcomers := map[lab.Style]*lab.Pod{}, map[lab.Style]*lab.Pod{}
		for _, style := range bothStyles {
			olderPods[style] = s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 12)})
			s.Sees(olderPods[style], olderPods[style].Addrs()...)
		}
		away := s.Actors[1]
		s.Do(away.Node.Disconnect())
		// Until they have given each other up: what a short cut leaves is there in time.
		s.WaitAlone(away)
		from := time.Now()
		for _, style := range bothStyles {
			newcomers[style] = s.PodOn(away, "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 12)})
			s.Sees(newcomers[style], newcomers[style].Addrs()...)
		}
		heal := time.Now()
		s.Do(away.Node.Reconnect())
		for _, style := range bothStyles {
			s.FindsHealed(from, heal, []*lab.Pod{olderPods[style], newcomers[style]}, s.Addrs(style, 12)...)
		}
	}},
	{ID: "D12", Want: Found, Nodes: 2, Text: "it starts while one direction is cut; from the heal", Play: func(s *Stage) {
		for i, style := range bothStyles {
			ips := s.Addrs(style, 12)
			isolated, other := s.Actors[i], s.Actors[1-i]
			older := s.PodOn(other, "older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
			s.Sees(older, ips...)
			remove := s.InjectFaults(lab.Fault{To: isolated.Node})
			from := time.Now()
			newcomer := s.PodOn(isolated, "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
			s.Sees(newcomer, ips...)
			s.WaitAlone(isolated)
			heal := time.Now()
			remove()
			s.FindsHealed(from, heal, []*lab.Pod{older, newcomer}, ips...)
			s.WaitAllMembers()
		}
	}},
	{ID: "D12", Want: Found, Nodes: 3, Text: "a fifth of all packets between the nodes is lost", Play: func(s *Stage) {
		s.InjectFaults(lab.Fault{Percent: 20})
		for i, style := range bothStyles {
			ips := s.Addrs(style, 20)
			older := s.PodOn(s.Actors[i], "older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
			s.Sees(older, ips...)
			newcomer := s.PodOn(s.Actors[i+1], "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
			s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
		}
	}},
	{ID: "D12", Want: Found, Nodes: 2, Text: "UDP is blocked, TCP passes; from the end of that", Play: func(s *Stage) {
		ips := s.Addrs(lab.Routed, 13)
		remove := s.InjectFaults(lab.Fault{UDP: lab.GossipPort})
		from := time.Now()
		older := s.PodOn(s.Actors[0], "older", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		newcomer := s.PodOn(s.Actors[1], "newcomer", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Sees(older, ips...)
		s.Sees(newcomer, ips...)
		heal := time.Now()
		remove()
		s.FindsHealed(from, heal, []*lab.Pod{older, newcomer}, ips...)
	}},
	{ID: "D13", Want: Found, Nodes: 3, Text: "it starts while the older pod's agent is down; from its start", Play: func(s *Stage) {
		s.whileDown(s.Actors[0])
	}},
	{ID: "D13", Want: Found, Nodes: 3, Text: "it starts while the newcomer's agent is down; from its start", Play: func(s *Stage) {
		s.whileDown(s.last())
	}},
	{ID: "D13", Want: Found, Text: "it starts while the agent of both is down; from its start", Play: func(s *Stage) {
		s.whileDown(s.Actors[0])
	}},
}

// whileDown plays a duplicate of a pod on the first node that starts on the last one
// while an agent is down: once killed, once stopped in order.
func (s *Stage) whileDown(down *Actor) {
	s.Helper()
	for i, style := range bothStyles {
		ips := s.Addrs(style, byte(13+i))
		older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		s.Sees(older, ips...)
		if i == 0 {
			s.Do(down.Agent.Kill())
		} else {
			s.Do(down.Agent.Stop())
		}
		from := time.Now()
		newcomer := s.PodOn(s.last(), "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		if down != s.last() {
			s.Sees(newcomer, ips...)
		}
		start := time.Now()
		s.Restart(down)
		s.FindsEarly(from, start, []*lab.Pod{older, newcomer}, ips...)
	}
}
