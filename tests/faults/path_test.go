package faults

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// oneWay drops what one of two holders' nodes sends to the other, so neither gets probe replies from
// the other. Keepers send both a conflict notice, so it is suspected; a third holder's node that
// reaches both confirms it with each of them.
func (s *testCluster) oneWay() {
	a, b, c := s.nodes[2], s.nodes[6], s.nodes[4]
	before := s.duplicate(a, b)
	s.waitFound(before, before.began, patience)
	heal := s.InjectFaults(lab.Fault{From: a.Node, To: b.Node})
	two, three := s.duplicate(a, b), s.duplicate(a, b, c)
	for _, n := range two.nodes() {
		_, err := n.watch.WaitType("suspected", two.ips[0], patience)
		s.Do(err)
	}
	for _, n := range three.nodes() {
		for _, ip := range three.ips {
			_, err := n.watch.WaitConfirmed(ip, patience)
			s.Do(err)
		}
	}
	s.holdsFor(10*time.Second, func() { s.assertUnchanged(before) })
	for _, n := range two.nodes() {
		for _, e := range n.watch.Events() {
			if slices.Contains(two.ips, e.Conflict.IP) && e.Type == "confirmed" {
				s.Errorf("confirmed at %s, which cannot probe the other holder: %s", n.ShortName(), lab.FormatEvents([]lab.Event{e}))
			}
		}
	}
	heal()
	healed := time.Now()
	s.Logf("two holders: found %.1f s after the heal", s.waitFound(two, healed, healTime).Seconds())
	s.Logf("three holders: all found %.1f s after the heal", s.waitFound(three, healed, healTime).Seconds())
	s.assertUnchanged(before)
}

// loss loses packets of all nodes while twenty duplicates begin at once.
func (s *testCluster) loss() {
	const percent, count = 5, 20
	heal := s.InjectFaults(lab.Fault{Percent: percent})
	var all []*duplicate
	for i := range count {
		all = append(all, s.duplicate(s.nodes[i%len(s.nodes)]))
	}
	// The lab is slower than this when pods are made one after the other.
	newcomers := make([]holder, count)
	errs := make([]error, count)
	var wg sync.WaitGroup
	for i, d := range all {
		n := s.nodes[(i+1+i/len(s.nodes))%len(s.nodes)]
		wg.Go(func() {
			p, err := n.AddPod(fmt.Sprintf("newcomer%d", i), lab.PodOptions{Style: lab.Routed, Addrs: d.ips})
			newcomers[i], errs[i] = holder{n, p}, err
		})
	}
	wg.Wait()
	s.Do(errs...)
	var took []time.Duration
	for i, d := range all {
		d.holders = append(d.holders, newcomers[i])
		d.began = newcomers[i].pod.Started
		took = append(took, s.waitFound(d, d.began, patience))
	}
	slices.Sort(took)
	s.Logf("at %d %% loss %d duplicates were found at both nodes after %.1f s (median), %.1f s (last)",
		percent, count, took[count/2].Seconds(), took[count-1].Seconds())
	heal()
}
