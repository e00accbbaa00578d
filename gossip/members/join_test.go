package members

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestChoose(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name                 string
		listed, lost, there  []netip.AddrPort
		aliases              []netip.AddrPort
		wantListed, wantLost int
	}{
		{name: "nothing"},
		{name: "ourselves only", listed: airAddresses(1, 1)},
		{name: "three at a time", listed: airAddresses(2, 9), wantListed: 3},
		{name: "one twice", listed: append(airAddresses(2, 2), airAddress(2)), wantListed: 1},
		{name: "only those who are missing", listed: airAddresses(2, 9), there: airAddresses(3, 9), wantListed: 1},
		{name: "all are there", listed: airAddresses(2, 9), there: airAddresses(2, 9)},
		{name: "lost ones", lost: airAddresses(20, 29), wantLost: 3},
		{name: "lost ones beside", listed: airAddresses(2, 9), lost: airAddresses(20, 29), wantListed: 2, wantLost: 1},
		{name: "more room for the lost", listed: airAddresses(2, 2), lost: airAddresses(20, 29), wantListed: 1, wantLost: 2},
		{name: "a lost one is listed", listed: airAddresses(2, 2), lost: airAddresses(2, 2), wantListed: 1},
		{name: "the name of a service", listed: airAddresses(2, 2), there: airAddresses(3, 3), aliases: airAddresses(2, 2)},
		{name: "who is alone tries all", listed: airAddresses(2, 2), aliases: airAddresses(2, 2), wantListed: 1},
	} {
		j := newJoins([]target{{addresses: test.listed}}, test.lost, now)
		j.self = airAddress(1)
		for _, at := range test.aliases {
			j.alias[at] = now.Add(time.Minute)
		}
		chosen := j.choose(set(test.there...), now)
		listed := 0
		for i, at := range chosen {
			if slices.Contains(test.listed, at) {
				listed++
			}
			if slices.Contains(chosen[:i], at) || at == j.self || slices.Contains(test.there, at) {
				t.Errorf("%s: %v", test.name, chosen)
			}
		}
		if listed != test.wantListed || len(chosen)-listed != test.wantLost {
			t.Errorf("%s: %v", test.name, chosen)
		}
	}
}

func TestLostAreBounded(t *testing.T) {
	now := time.Now()
	j := newJoins(nil, airAddresses(1, 64), now)
	for i := range 2 * maxLost {
		j.lost(airAddress(1000+i), now.Add(time.Duration(i+1)*time.Second))
	}
	if len(j.away) != maxLost || !j.isLost(airAddress(1000+2*maxLost-1)) {
		t.Errorf("%d in the book, or not the last one", len(j.away))
	}
	if chosen := j.choose(nil, now.Add(lostFor+time.Hour)); len(chosen) != 0 || len(j.away) != 0 {
		t.Errorf("after a day: %v of %d", chosen, len(j.away))
	}
}

// names is a name service.
type names struct {
	mu      sync.Mutex
	answer  []netip.AddrPort // nil is an error
	lookups int
}

func (s *names) set(answer ...netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.lookups = answer, 0
}

func (s *names) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

func (s *names) lookup(_ context.Context, network, host string) (addrs []netip.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lookups++; network != "ip" || host != "members.test" {
		return nil, fmt.Errorf("resolving %s %s", network, host)
	}
	if s.answer == nil {
		return nil, errors.New("no such host")
	}
	for _, at := range s.answer {
		addrs = append(addrs, at.Addr())
	}
	return addrs, nil
}

// A name stands for all its addresses, and is resolved often while somebody is missing, and seldom otherwise.
func TestJoinByName(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		first := open(t, a, 1)
		n := prepare(t, a, 2, func(o *Options) { o.Join = []string{"members.test"} })
		var service names
		n.joins.lookup = service.lookup
		n.run()
		within(t, "it is said that the name means nothing", time.Minute, func() bool {
			return strings.Contains(n.problems(), "resolving members.test: no such host")
		})
		service.set(airAddress(2))
		time.Sleep(5 * time.Minute)
		unspecified := netip.AddrPortFrom(netip.IPv4Unspecified(), DefaultPort)
		service.set(airAddress(1), airAddress(2), unspecified) // it has itself, too
		complete(t, time.Minute, first, n)
		// per returns how often it is resolved in an hour.
		per := func() int {
			time.Sleep(time.Minute)
			before := service.count()
			time.Sleep(time.Hour)
			return service.count() - before
		}
		if got := per(); got < 5 || got > 7 || n.problems() != "" {
			t.Errorf("all are there: resolved %d times in an hour, problems %q", got, n.problems())
		}
		service.set(airAddress(1), airAddress(2), airAddress(3))
		if got := per(); got < 60 || got > 150 {
			t.Errorf("one is missing: resolved %d times in an hour", got)
		}
		third := open(t, a, 3)
		complete(t, time.Minute, first, n, third)
		if got := per(); got > 7 {
			t.Errorf("all are there again: resolved %d times in an hour", got)
		}
		// One is lost, and another takes its place somewhere else: nobody knows but the name service.
		third.kill()
		within(t, "it is lost", time.Minute, func() bool { return n.count() == 2 && first.count() == 2 })
		service.set(airAddress(1), airAddress(2))
		time.Sleep(15 * time.Minute)
		service.set(airAddress(1), airAddress(2), airAddress(4))
		fourth := open(t, a, 4)
		complete(t, 2*lookAgain, first, n, fourth)
		// With the others the name service is lost, and only they come back.
		service.set()
		a.lose(func(_, _ netip.AddrPort, _ bool) bool { return true })
		within(t, "all are lost", 2*time.Minute, func() bool { return first.count()+n.count()+fourth.count() == 3 })
		time.Sleep(10 * time.Minute) // so that memberlist has forgotten them
		for _, lost := range []*node{first, n, fourth} {
			lost.joins.mu.Lock()
			clear(lost.joins.away) // as after a day
			lost.joins.mu.Unlock()
		}
		a.lose(nil)
		complete(t, 2*time.Minute, first, n, fourth)
	})
}

// The address of a service leads to a member that has another one: it is joined seldom, unless nobody else is there.
func TestJoinByService(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		first := open(t, a, 1)
		service := airAddress(100)
		a.change(func() { a.ports[service] = first.port })
		second := open(t, a, 2, func(o *Options) { o.Join = []string{service.String()} })
		complete(t, time.Minute, first, second)
		before := a.streamsTo(service)
		time.Sleep(time.Hour)
		if got := a.streamsTo(service) - before; got < 5 || got > 7 {
			t.Errorf("joined %d times in an hour", got)
		}
		first.kill()
		within(t, "it is alone", time.Minute, func() bool { return second.count() == 1 })
		next := open(t, a, 1, func(o *Options) { o.Epoch = 2 })
		a.change(func() { a.ports[service], a.ports[airAddress(1)] = next.port, nil })
		complete(t, 2*time.Minute, next, second)
	})
}

// In a partition that lasts, memberlist gives up the other side for good. Only members that are remembered, or
// listed, bring the sides together again.
func TestLongPartition(t *testing.T) {
	for _, test := range []struct {
		name  string
		lasts time.Duration
		join  func(number int) int // of whom a node has the address
	}{
		{"for a moment", 90 * time.Second, func(int) int { return 1 }},
		{"all have the first", 20 * time.Minute, func(int) int { return 1 }},
		{"lost members are remembered", 20 * time.Minute, func(number int) int { return 1 + 3*((number-1)/3) }},
		{"for an hour", time.Hour, func(number int) int { return 1 + 3*((number-1)/3) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if testneeds.Raced && test.lasts > time.Hour/2 {
				t.Skip("an hour takes a minute with the race detector")
			}
			inAir(t, func(t *testing.T, a *air) {
				var nodes []*node
				for i := 1; i <= 6; i++ {
					nodes = append(nodes, open(t, a, i, func(o *Options) { o.Join = []string{airAddress(test.join(i)).String()} }))
				}
				bridge := open(t, a, 7, joining(nodes...))
				complete(t, 2*time.Minute, append(nodes, bridge)...)
				bridge.stop()
				complete(t, 2*time.Minute, nodes...)
				side := func(at netip.AddrPort) bool { return at.Compare(airAddress(4)) < 0 }
				a.lose(func(from, to netip.AddrPort, _ bool) bool { return side(from) != side(to) })
				time.Sleep(test.lasts)
				for i, want := range []string{"n2 n3", "n1 n3", "n1 n2", "n5 n6", "n4 n6", "n4 n5"} {
					if got := nodes[i].others(); got != want {
						t.Errorf("meanwhile n%d knows %s", i+1, got)
					}
				}
				a.lose(nil)
				took := complete(t, 2*time.Minute, nodes...)
				t.Logf("complete after %v", took)
				time.Sleep(10 * time.Second)
				for _, n := range nodes {
					if n.problems() != "" {
						t.Errorf("%s: problems %q", n.self.Name, n.problems())
					}
				}
			})
		})
	}
}

// A node that is cut off tries again soon, whenever that happens, and not only when it would have looked for lost members.
func TestCutOff(t *testing.T) {
	for after := time.Duration(0); after < lookAgain; after += 5 * time.Second {
		inAir(t, func(t *testing.T, a *air) {
			nodes := openCluster(t, a, 3)
			time.Sleep(after)
			off := nodes[2]
			a.lose(func(from, to netip.AddrPort, _ bool) bool { return (from == off.address()) != (to == off.address()) })
			within(t, "it is alone", time.Minute, func() bool { return off.others() == "" })
			time.Sleep(5 * time.Second) // memberlist's own news of it is over
			a.lose(nil)
			took := complete(t, 12*time.Second, nodes...)
			t.Logf("cut off after %v: complete after %v", after, took)
		})
	}
}

// Rejoin exchanges the list with three members at once.
func TestRejoin(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 5)
		time.Sleep(time.Minute)
		a.change(func() { clear(a.streams) })
		nodes[4].Rejoin()
		within(t, "three exchanges", time.Second, func() bool {
			streams := 0
			for _, n := range nodes {
				streams += a.streamsTo(n.address())
			}
			return streams >= joinAtOnce
		})
	})
}

// A reporter that died is not looked for, nor remembered: its address was a pod's, and is another pod's soon.
func TestReporterIsNotLookedFor(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		path := filepath.Join(t.TempDir(), "members.json")
		agent := open(t, a, 1, func(o *Options) { o.MembersFile = path })
		other := open(t, a, 2, joining(agent))
		reporter := open(t, a, 3, joining(agent), func(o *Options) { o.Role = cluster.Reporter })
		complete(t, time.Minute, agent, other, reporter)
		time.Sleep(time.Minute)
		if known := openKnown(path).last; !slices.Equal(known, []netip.AddrPort{other.address()}) {
			t.Errorf("remembered are %v", known)
		}
		other.kill()
		reporter.kill()
		within(t, "both are lost", time.Minute, func() bool { return agent.saw("-n2") && agent.saw("-n3") })
		if !agent.joins.isLost(other.address()) || agent.joins.isLost(reporter.address()) {
			t.Errorf("looked for are %v", agent.joins.away)
		}
	})
}
