package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietMoves are addresses that move between pods, within one node and from the first node to the
// last one.
var quietMoves = slices.Concat(
	onOneAndMore(2, Scenario{ID: "Q1", Want: Quiet, MaySuspect: true, Text: "an address is given out again 0, 0.1, 5 s later", Play: givenOutAgain}),
	[]Scenario{{ID: "Q3", Want: Quiet, Nodes: 3, MaySuspect: true, Text: "a pod moves with its address, updates arrive in any order", Play: anyOrder}},
	onOneAndMore(2, Scenario{ID: "Q10", Want: Quiet, MaySuspect: true, Text: "a VIP moves between two pods, keepalived's way", Play: movingVIP}),
	onOneAndMore(2, Scenario{ID: "Q11", Want: Quiet, MaySuspect: true, MinOverlap: longOverlap, Text: "hand-over with a short overlap", Play: shortOverlap}),
	onOneAndMore(2, Scenario{ID: "Q15", Want: Quiet, MaySuspect: true, Text: "a pod changes its address, another takes the old one", Play: changedAddress}),
)

// longOverlap is the --min-overlap of agents where two holders of one address overlap for a part of
// it: a slow machine needs a while to end the previous one.
var longOverlap = min(lab.Patience(3*time.Second), 20*time.Second)

func givenOutAgain(s *Stage) {
	for i, gap := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second} {
		// Both styles at once, because of the waiting; each there and back.
		for round := range 2 {
			from, to := s.Actors[0], s.last()
			if round == 1 {
				from, to = to, from
			}
			var olds, news []*lab.Pod
			for _, style := range bothStyles {
				name := fmt.Sprintf("%s-%d-%d", styleName(style), i, round)
				p := s.PodOn(from, "old-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, byte(100+10*i+round))})
				s.Talk(p, p.Addrs()...)
				s.Sees(p, p.Addrs()...)
				olds = append(olds, p)
				// To make a pod takes longer than the shortest gap, so it is there.
				news = append(news, s.PodOn(to, "new-"+name, lab.PodOptions{Style: style}))
			}
			for j, p := range olds {
				s.Do(p.Delete())
				if gap == 0 {
					s.takeOver(news[j], p.Addrs())
				}
			}
			if gap > 0 {
				// It is not over for the others: this is what is played.
				time.Sleep(gap)
				for j, p := range olds {
					s.takeOver(news[j], p.Addrs())
				}
			}
			for j, p := range olds {
				s.Sees(news[j], p.Addrs()...)
			}
		}
	}
}

// takeOver gives addresses to a pod that speaks at once.
func (s *Stage) takeOver(p *lab.Pod, ips []netip.Addr) {
	s.Helper()
	for _, ip := range ips {
		s.Do(p.AddAddr(ip))
	}
	s.Talk(p, ips...)
}

// anyOrder moves pods around three nodes while the messages of one of them are lost.
func anyOrder(s *Stage) {
	inverted := 0
	for _, style := range bothStyles {
		ips := s.Addrs(style, 3)
		at := s.Actors[0]
		pod := s.PodOn(at, styleName(style)+"-0", lab.PodOptions{Style: style, Addrs: ips})
		s.Talk(pod, ips...)
		s.Sees(pod, ips...)
		for round := range 6 {
			next := s.Actors[(round+1)%3]
			if round%3 == 1 {
				s.awaitLeases()
			}
			heal, began := func() {}, time.Now()
			switch round % 3 {
			case 1: // the end of the old one arrives after the new one
				heal = s.InjectFaults(lab.Fault{From: at.Node})
			case 2: // the new one arrives long after the end of the old one
				heal = s.InjectFaults(lab.Fault{From: next.Node})
			}
			s.Do(pod.Delete())
			pod = s.PodOn(next, fmt.Sprintf("%s-%d", styleName(style), round+1), lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(pod, ips...)
			s.Sees(pod, ips...)
			if round%3 > 0 {
				// Time for the first leases, and for their first repetition.
				time.Sleep(1500 * time.Millisecond)
			}
			if round%3 == 1 && next.outOfOrder(ips, began) {
				inverted++
			}
			heal()
			at = next
		}
	}
	if inverted == 0 {
		s.Errorf("no agent received a new holder before the end of the previous one")
	}
}

// awaitLeases waits until every agent keeps the leases of all: with three nodes all are keepers.
func (s *Stage) awaitLeases() {
	s.Helper()
	if err := lab.Poll(s.Context(), patience, func() error {
		all := 0.0
		kept := make(map[string]float64)
		for _, a := range s.Actors {
			status, err := a.Agent.Client.Status(s.Context())
			if err != nil {
				return err
			}
			cluster := status["cluster"].(map[string]any)
			all += cluster["leases"].(float64)
			kept[a.Node.ShortName()] = cluster["leasesKept"].(float64)
		}
		for _, n := range kept {
			if n != all {
				return fmt.Errorf("there are %v leases, and the nodes keep %v", all, kept)
			}
		}
		return nil
	}); err != nil {
		// Then this round is not what it is meant to be. There are others.
		s.Logf("%v", err)
	}
}

// outOfOrder returns whether the updates are in the wrong order: the new holder's agent has the
// previous holder, and not its end. It may lack both, if a keeper had no lease of the previous holder
// before the messages were lost.
func (a *Actor) outOfOrder(ips []netip.Addr, since time.Time) bool {
	for _, ip := range ips {
		if _, err := a.Watch.Wait(lab.Patience(2*time.Second), func(e lab.Event) bool {
			return e.Type == "suspected" && e.Conflict.IP == ip && e.Received.After(since)
		}); err != nil {
			return false
		}
	}
	return true
}

func movingVIP(s *Stage) {
	for _, style := range bothStyles {
		name, vips := styleName(style), s.Addrs(style, 100)
		pods := []*lab.Pod{
			s.Pod("a-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, 101)}),
			s.PodOn(s.last(), "b-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, 102)}),
		}
		var master *lab.Pod
		for round := range 6 {
			next := pods[round%2]
			for _, vip := range vips {
				if master != nil {
					s.Do(master.DelAddr(vip))
				}
				s.Do(next.AddAddr(vip))
			}
			// As keepalived does, five times each.
			for range 5 {
				for _, vip := range vips {
					s.Do(next.Announce(vip))
				}
			}
			s.Sees(next, vips...)
			if master != nil {
				s.WaitLost(master, vips...)
			}
			master = next
		}
	}
}

func shortOverlap(s *Stage) {
	for _, style := range bothStyles {
		s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
			name, ips := fmt.Sprintf("%s%d", styleName(style), try), s.Addrs(style, byte(110+try))
			older := s.Pod("older-"+name, lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(older, ips...)
			s.Sees(older, ips...)
			// The old pod's eth0 goes away a moment after its address was given out.
			newcomer := s.PodOn(s.last(), "newcomer-"+name, lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(newcomer, ips...)
			return newcomer, ips, newcomer.Started, older.Delete
		})
	}
	// Live migration: the target announces itself before the source is stopped.
	for family := range 2 {
		s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
			ip := s.Addrs(lab.Bridged, byte(120+try))[family]
			talk := lab.GuestOptions{Addr: ip, Interval: 50 * time.Millisecond}
			source := s.Pod(fmt.Sprintf("source%d-%d", family, try), lab.PodOptions{Style: lab.Raw})
			before, err := source.StartGuest(talk)
			s.Do(err)
			s.Sees(source, ip)
			target := s.PodOn(s.last(), fmt.Sprintf("target%d-%d", family, try), lab.PodOptions{Style: lab.Raw})
			since := time.Now()
			_, err = target.StartGuest(talk)
			s.Do(err)
			return target, []netip.Addr{ip}, since, before.Stop
		})
	}
}

// handOver ends the previous holder a short while after the new one began. If the machine was so slow
// that the overlap was too long, it plays again with other addresses.
func (s *Stage) handOver(begin func(try int) (to *lab.Pod, ips []netip.Addr, since time.Time, end func() error)) {
	s.Helper()
	overlap, limit := s.row.MinOverlap*3/10, s.row.MinOverlap*9/10
	for try := range 5 {
		to, ips, since, end := begin(try)
		time.Sleep(time.Until(since.Add(overlap)))
		s.Do(end())
		took := time.Since(since)
		s.Sees(to, ips...)
		if took < limit {
			return
		}
		s.Logf("an overlap of %v is not a short one", took)
		s.Expect(ips...)
	}
	s.Fatal("this machine is too slow for a short overlap")
}

func changedAddress(s *Stage) {
	for _, style := range bothStyles {
		name, was, is := styleName(style), s.Addrs(style, 15), s.Addrs(style, 16)
		mover := s.Pod("mover-"+name, lab.PodOptions{Style: style, Addrs: was})
		running := s.PodOn(s.last(), "running-"+name, lab.PodOptions{Style: style, Addrs: s.Addrs(style, 17)})
		s.Talk(mover, was...)
		s.Sees(mover, was...)
		for i := range was {
			s.Do(mover.DelAddr(was[i]), mover.AddAddr(is[i]))
			s.Talk(mover, is[i])
			// One taker is a running pod, the next a new one.
			s.Do(running.AddAddr(was[i]))
			s.Talk(running, was[i])
			s.Sees(mover, is[i])
			s.Sees(running, was[i])
			s.WaitLost(mover, was[i])
			s.Do(running.DelAddr(was[i]))
		}
		taker := s.PodOn(s.last(), "taker-"+name, lab.PodOptions{Style: style, Addrs: was})
		s.Talk(taker, was...)
		s.Sees(taker, was...)
	}
}
