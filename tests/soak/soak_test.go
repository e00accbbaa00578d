// Package soak runs three real agents while random pods start, end and move, addresses change
// hands, pods get the same address, and agents restart. Package plan draws the steps from a seed,
// package truth reads every 250 ms which namespace has which addresses, and package judge compares
// that with what the agents report at the same time.
//
// This package runs the steps, watches the agents and writes everything down. A finding is printed
// with the seed and the history of the address.
package soak

import (
	"cmp"
	"flag"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
	"github.com/dupip/dupip/tests/soak/plan"
)

var (
	length = flag.Duration("duration", 30*time.Second, "how long the plan is")
	keep   = flag.Bool("keep", false, "keep the journal, also when nothing is found")
	loss   = flag.Int("loss", 0, "how many of a hundred packets between nodes are lost")
	seed   = flag.Uint64("seed", 1, "what the plan is drawn from; 0 takes one from the clock")
)

const (
	nodes = 3
	// pods is how many there are at a time, and pool how many addresses of each family
	// they share: few, so that one is used again as soon as it is left.
	pods = 48
	pool = 64
	// minOverlap is the agents' --min-overlap.
	minOverlap = time.Second
	// tick is the interval of snapshots. One that is more than stall late is noted; the judge allows
	// for what is more than a tick late.
	tick  = 250 * time.Millisecond
	stall = time.Second
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

func TestSoak(t *testing.T) {
	seed := cmp.Or(*seed, uint64(time.Now().Unix()))
	t.Logf("seed %d, %v", seed, *length)
	s := newSoak(t, seed)
	if *loss > 0 {
		s.InjectFaults(lab.Fault{Percent: *loss})
	}
	s.play(plan.Draw(seed, s.cluster(), *length))
	s.leftovers()
	for _, a := range s.agents {
		s.resyncFound(a)
	}
	s.summary()
}

// limits are the judge's for this machine.
func limits() judge.Limits {
	l := judge.DefaultLimits()
	l.Overlap = minOverlap
	l.Deaf += lab.Patience(l.Found) - l.Found // most of it are pauses, which do not take longer on a slow machine
	l.Found, l.Fresh, l.Over = lab.Patience(l.Found), lab.Patience(l.Fresh), lab.Patience(l.Over)
	l.Suspicion, l.Restart = lab.Patience(l.Suspicion), lab.Patience(l.Restart)
	return l
}

// site is what a plan has to know of the lab.
func (s *soak) cluster() plan.Cluster {
	site := plan.Cluster{Pods: pods}
	for _, n := range s.nodes {
		site.Host = append(site.Host, []netip.Addr{n.Uplink(), n.Uplink6(), n.IPv4(1), n.IPv6(1)})
	}
	for i := range byte(pool) {
		site.Pool = append(site.Pool, s.nodes[0].IPv4(100+i), s.nodes[0].IPv6(100+i))
	}
	return site
}
