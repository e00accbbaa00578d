package metrics

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
)

// pair are two pods of a node that collide again and again, as a real detector sees them. Both answer at once.
type pair struct {
	detector *detector.Detector
	metrics  *Metrics
	first    detector.Holder
	second   detector.Holder
	listed   map[string]bool // all series of conflicts that any scrape had
	last     map[string]map[string]float64
}

func newPair() *pair {
	p := &pair{
		detector: detector.New(detector.Options{Node: "n1/3f0c"}),
		first:    binding("a", detector.Pod{Namespace: "shop", Name: "a"}, 1).Holder,
		second:   binding("b", detector.Pod{Namespace: "shop", Name: "b"}, 2).Holder,
		listed:   make(map[string]bool),
	}
	p.first.Interface.Ifindex, p.second.Interface.Ifindex = 1, 2
	p.metrics = New(Sources{Loop: func(context.Context) (LoopStats, error) {
		return LoopStats{Counts: p.detector.Counts(), Open: p.detector.Conflicts(false)}, nil
	}})
	return p
}

// collide has both pods answer for some addresses for two seconds. Then the second pod gives them up, the conflicts
// end, and the first pod gives them up.
// Prometheus scrapes twice a second.
func (p *pair) collide(t *testing.T, ips ...netip.Addr) {
	t.Helper()
	see := func(ip netip.Addr, h detector.Holder, answer bool) []detector.Probe {
		now := time.Now()
		return p.detector.Observe(detector.Sighting{
			Key: detector.Key{Network: "default", IP: ip}, Holder: h, Evidence: detector.Announced, Answer: answer, At: now,
		}, now).Probes
	}
	var probes []detector.Probe
	for _, ip := range ips {
		probes = append(probes, append(see(ip, p.first, false), see(ip, p.second, false)...)...)
	}
	for began := time.Now(); time.Since(began) < 2*time.Second || len(p.detector.Conflicts(false)) > 0; {
		for len(probes) > 0 {
			probe := probes[0]
			h := p.first
			if probe.Holder == p.second.ID {
				h = p.second
			}
			p.detector.Probed(probe, detector.Result{Outcome: detector.Sent}, time.Now())
			probes = append(probes[1:], see(probe.Key.IP, h, true)...)
		}
		p.scrape(t)
		time.Sleep(500 * time.Millisecond)
		if time.Since(began) == 2*time.Second {
			for _, ip := range ips {
				p.detector.Withdraw(detector.Key{Network: "default", IP: ip}, p.second.ID, "it gave the address up", time.Now())
			}
		}
		probes = p.detector.Tick(time.Now()).Probes
	}
	for _, ip := range ips {
		p.detector.Withdraw(detector.Key{Network: "default", IP: ip}, p.first.ID, "it gave the address up", time.Now())
	}
}

// scrape adds the series of conflicts that a scrape has, and checks that each open conflict is named or counted.
func (p *pair) scrape(t *testing.T) {
	t.Helper()
	p.last = families(t, p.metrics)
	for name, series := range p.last {
		if strings.HasPrefix(name, "dupip_conflict_") {
			for labels := range series {
				p.listed[name+"/"+labels] = true
			}
		}
	}
	open := p.detector.Counts().Open
	all := open[detector.StateScope{State: detector.Suspected, Scope: detector.SameNode}] + open[detector.StateScope{State: detector.Confirmed, Scope: detector.SameNode}]
	if named, omitted := len(p.last[conflictInfo.name]), p.last[conflictInfoOmitted.name][""]; named+int(omitted) != all {
		t.Fatalf("%d conflicts are named and %v are not, of %d", named, omitted, all)
	}
}

func (p *pair) check(t *testing.T, conflicts uint64, series int) {
	t.Helper()
	confirmed := p.detector.Counts().Confirmed[detector.SameNode]
	t.Logf("%d conflicts, %d series", confirmed, len(p.listed))
	if confirmed != conflicts {
		t.Errorf("%d conflicts, want %d", confirmed, conflicts)
	}
	if len(p.listed) > series {
		t.Errorf("%d series, want at most %d", len(p.listed), series)
	}
}

// addresses returns n that follow one.
func addresses(first string, n int) (list []netip.Addr) {
	for ip := netip.MustParseAddr(first); len(list) < n; ip = ip.Next() {
		list = append(list, ip)
	}
	return list
}

// The same addresses again and again: two ids of each, each suspected and confirmed. Without a bound there are four new series for
// each conflict, 8,001 here.
func TestChurningPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		for range 20 {
			p.collide(t, addresses("10.0.0.1", 100)...)
			if omitted := p.last[conflictInfoOmitted.name][""]; omitted != 0 {
				t.Fatalf("%v conflicts are not named", omitted)
			}
		}
		p.check(t, 2000, 100*2*4+1)
	})
}

// Other addresses each time, and other MACs each time: of each pair as many are named in ten minutes as of two full pages, but another
// pair's conflict always is, and theirs again ten minutes later.
func TestPairThatChangesAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		for n := range 5 {
			p.collide(t, addresses(fmt.Sprintf("10.0.%d.1", n), 100)...)
		}
		for n := range 100 {
			p.second.MAC[4] = byte(n)
			p.collide(t, addresses("10.1.0.1", 1)...)
		}
		p.check(t, 600, maxOfPair*4+1)
		first := p.first
		p.first = binding("c", detector.Pod{Namespace: "shop", Name: "c"}, 3).Holder
		p.first.Interface.Ifindex = 3
		p.check(t, 600, maxOfPair*4+1)
		p.collide(t, addresses("10.2.0.1", 1)...)
		p.check(t, 601, maxOfPair*4+1+4)
		p.first = first
		time.Sleep(listingTTL)
		p.collide(t, addresses("10.3.0.1", 1)...)
		p.check(t, 602, maxOfPair*4+1+4+4)
		if len(p.listed) != maxOfPair*4+1+4+4 {
			t.Errorf("%d series: a pair is not named again", len(p.listed))
		}
	})
}

// All that a pair of pods can choose counts, whichever of them is the older holder.
func TestListingsOfPair(t *testing.T) {
	for name, change := range map[string]func(c *detector.Conflict, n byte){
		"addresses": func(c *detector.Conflict, n byte) { c.Key.IP = netip.AddrFrom4([4]byte{10, 0, 0, n}) },
		"names":     func(c *detector.Conflict, n byte) { c.Holders[0].Holder.InterfaceName = fmt.Sprint("veth", n) },
		"MACs":      func(c *detector.Conflict, n byte) { c.Holders[1].Holder.MAC[5] = n },
		"MACs, and the other one is older": func(c *detector.Conflict, n byte) {
			c.Holders[1].Holder.MAC[5] = n
			if n%2 == 0 {
				slices.Reverse(c.Holders)
			}
		},
	} {
		listed, named := make(listings), 0
		of := listed.expire(noon)
		for n := range byte(255) {
			c := conflict(1, detector.Confirmed, noon, binding("a", detector.Pod{}, 1), binding("b", detector.Pod{}, 2))
			if change(&c, n); listed.admit(&c, of, noon) {
				named++
			}
		}
		if named != maxOfPair {
			t.Errorf("%s: %d are named, want %d", name, named, maxOfPair)
		}
	}
}

// The memory for that is bounded, too, and nothing is hidden beyond.
func TestListingsAreBounded(t *testing.T) {
	m := New(Sources{})
	now := noon
	of := m.listed.expire(now)
	for i := range uint64(2 * maxListings) {
		c := conflict(int(i), detector.Confirmed, noon, binding("a", detector.Pod{}, 2*i), binding("b", detector.Pod{}, 2*i+1))
		if !m.listed.admit(&c, of, now) {
			t.Fatalf("pair %d is not named", i)
		}
	}
	if left := m.listed.expire(now.Add(listingTTL)); len(m.listed) != maxListings || len(left) != maxListings {
		t.Errorf("%d listings of %d pairs, want %d", len(m.listed), len(left), maxListings)
	}
	if left := m.listed.expire(now.Add(listingTTL + 1)); len(m.listed) != 0 || len(left) != 0 {
		t.Errorf("%d listings of %d pairs have not expired", len(m.listed), len(left))
	}
}

// Two ids in succession differ, and no other text is an id.
func TestIDLabel(t *testing.T) {
	for id, want := range map[string]string{
		"5f3a9b21-1": "5f3a9b21-1", "5f3a9b21-2": "5f3a9b21-2", "5f3a9b21-3": "5f3a9b21-1", "5f3a9b21-1000": "5f3a9b21-2", "5f3a9b21": "5f3a9b21", "": "",
	} {
		if got := idLabel(id); got != want {
			t.Errorf("%q becomes %q, want %q", id, got, want)
		}
	}
}
