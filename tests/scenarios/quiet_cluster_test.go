package scenarios

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietCluster are addresses that move between nodes lawfully.
var quietCluster = []Scenario{
	{ID: "Q1", Want: Quiet, Nodes: 2, MaySuspect: true, Text: "an address is given out on another node 0, 0.1, 5 s later", Story: func(s *Stage) {
		for i, gap := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second} {
			// Both styles at once, because of the waiting; each there and back.
			for round := range 2 {
				from, to := s.Actors[round], s.Actors[1-round]
				var olds []*lab.Pod
				for _, style := range bothStyles {
					p := s.PodOn(from, fmt.Sprintf("old-%s-%d-%d", styleName(style), i, round),
						lab.PodOptions{Style: style, Addrs: s.Addrs(style, byte(100+10*i+round))})
					s.Talk(p, p.Addrs()...)
					s.Sees(p, p.Addrs()...)
					olds = append(olds, p)
				}
				for _, p := range olds {
					s.Do(p.Delete())
				}
				// It is not over for the others: this is what is played.
				time.Sleep(gap)
				for j, style := range bothStyles {
					p := s.PodOn(to, fmt.Sprintf("new-%s-%d-%d", styleName(style), i, round),
						lab.PodOptions{Style: style, Addrs: olds[j].Addrs()})
					s.Talk(p, p.Addrs()...)
					s.Sees(p, p.Addrs()...)
				}
			}
		}
	}},
	{ID: "Q3", Want: Quiet, Nodes: 3, MaySuspect: true, Text: "a pod moves with its address, the words come in any order", Story: func(s *Stage) {
		for _, style := range bothStyles {
			ips := s.Addrs(style, 3)
			at := s.Actors[0]
			pod := s.PodOn(at, styleName(style)+"-0", lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(pod, ips...)
			s.Sees(pod, ips...)
			for round := range 6 {
				next := s.Actors[(round+1)%3]
				mend := func() {}
				switch round % 3 {
				case 1: // the end of the old one is told after the new one
					mend = s.Break(lab.Fault{From: at.Node})
				case 2: // the new one is told long after the end of the old one
					mend = s.Break(lab.Fault{From: next.Node})
				}
				s.Do(pod.Delete())
				pod = s.PodOn(next, fmt.Sprintf("%s-%d", styleName(style), round+1), lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(pod, ips...)
				s.Sees(pod, ips...)
				if round%3 > 0 {
					// Time for the first words, and for their first repetition.
					time.Sleep(1500 * time.Millisecond)
				}
				mend()
				at = next
			}
		}
	}},
	{ID: "Q10", Want: Quiet, Nodes: 2, MaySuspect: true, Text: "a VIP moves between pods on two nodes", Story: func(s *Stage) {
		vips := s.Addrs(lab.Routed, 100)
		pods := []*lab.Pod{
			s.PodOn(s.Actors[0], "a", lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, 101)}),
			s.PodOn(s.Actors[1], "b", lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, 102)}),
		}
		for round := range 6 {
			next, last := pods[round%2], pods[1-round%2]
			for _, vip := range vips {
				if round > 0 {
					s.Do(last.DelAddr(vip))
				}
				s.Do(next.AddAddr(vip), next.Announce(vip))
			}
			s.Sees(next, vips...)
		}
	}},
	{ID: "Q11", Want: Quiet, Nodes: 2, MaySuspect: true, Text: "hand-over between nodes with a short overlap", Story: func(s *Stage) {
		for _, style := range bothStyles {
			s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
				name, ips := fmt.Sprintf("%s%d", styleName(style), try), s.Addrs(style, byte(110+try))
				elder := s.PodOn(s.Actors[0], "elder-"+name, lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(elder, ips...)
				s.Sees(elder, ips...)
				newcomer := s.PodOn(s.Actors[1], "newcomer-"+name, lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(newcomer, ips...)
				return newcomer, ips, newcomer.Started, elder.Delete
			})
		}
		// Live migration: the target announces itself before the source is stopped.
		for family := range 2 {
			s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
				ip := s.Addrs(lab.Bridged, byte(120+try))[family]
				talk := lab.GuestOptions{Addr: ip, Talk: 50 * time.Millisecond}
				source := s.PodOn(s.Actors[0], fmt.Sprintf("source%d-%d", family, try), lab.PodOptions{Style: lab.Raw})
				before, err := source.StartGuest(talk)
				s.Do(err)
				s.Sees(source, ip)
				target := s.PodOn(s.Actors[1], fmt.Sprintf("target%d-%d", family, try), lab.PodOptions{Style: lab.Raw})
				since := time.Now()
				_, err = target.StartGuest(talk)
				s.Do(err)
				return target, []netip.Addr{ip}, since, before.Stop
			})
		}
	}},
	{ID: "Q23", Want: Quiet, Nodes: 3, MaySuspect: true, Text: "200 pods at 20 a second on three nodes, addresses reused at once", Story: func(s *Stage) {
		const lanes, rounds, life = 20, 10, time.Second
		last := make([]*lab.Pod, lanes)
		errs := make([]error, lanes)
		began := time.Now()
		var all sync.WaitGroup
		for lane := range lanes {
			all.Go(func() {
				time.Sleep(time.Duration(lane) * life / lanes)
				last[lane], errs[lane] = s.lane(lane, rounds, life)
			})
		}
		all.Wait()
		s.Do(errs...)
		s.Logf("%.1f pods a second", lanes*rounds/time.Since(began).Seconds())
		for _, p := range last {
			s.Sees(p, p.Addrs()...)
		}
	}},
}

// lane gives the addresses of one lane to one pod after the other, each on another node
// than the one before. The last one stays.
func (s *Stage) lane(lane, rounds int, life time.Duration) (pod *lab.Pod, err error) {
	style := bothStyles[lane%2]
	ips := s.Addrs(style, byte(30+lane))
	for round := range rounds {
		if pod != nil {
			if err := pod.Delete(); err != nil {
				return nil, err
			}
		}
		due := time.Now().Add(life)
		n := s.Actors[(lane+round)%len(s.Actors)].Node
		pod, err = n.AddPod(fmt.Sprintf("pod%d-%d", lane, round), lab.PodOptions{Style: style, Addrs: ips})
		if err != nil {
			return nil, err
		}
		if err := pod.Spoof(ips...); err != nil {
			return nil, err
		}
		if round < rounds-1 {
			time.Sleep(time.Until(due))
		}
	}
	return pod, nil
}
