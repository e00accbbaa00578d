package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// A pod may hold as many addresses as it likes; the agent does not hold them, too, and
// finds what is on the pod's interface.
func TestPodWithManyAddresses(t *testing.T) {
	const addresses = 20_000
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv4(5)
	l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{ip}})
	hoarder := l.Pod(n, "hoarder", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
	before := l.Usage(a.Process)
	l.Do(addAddrs(hoarder, "lo", addresses))
	l.Do(hoarder.AddAddr(ip))
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	after := l.Usage(a.Process)
	t.Logf("%d addresses: rss %s, then %s, at most %s; %.2f of a core for %v", addresses, mebibytes(before.RSS),
		mebibytes(after.RSS), mebibytes(after.Peak), after.Cores(before), after.At.Sub(before.At).Round(time.Millisecond))
	// To hold them all would take 12 MiB and more.
	if grown, limit := after.Peak-before.RSS, 9<<20; grown > limit {
		t.Errorf("the agent grew by %s, want at most %s", mebibytes(grown), mebibytes(limit))
	}
}

// A pod that changes its addresses all the time costs the agent little and hardly delays events about
// other pods: for a silent address that another pod takes, the event is the only source.
func TestPodWithChangingAddresses(t *testing.T) {
	const newcomers = 40
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n, "--log-level", "info")
	changer := l.Pod(n, "changer", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
	other := l.Pod(n, "other", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(7)}, Silent: true})
	quiet, started := l.Usage(a.Process), time.Now()
	flood := floodAddresses(l, changer, "lo", netip.MustParseAddr("198.18.0.1"))
	l.Eventually("a second of many changes", func() error {
		if n := flood.count.Load(); n < 10_000 || time.Since(started) < time.Second {
			return fmt.Errorf("%d changes", n)
		}
		return nil
	})
	flooded := l.Usage(a.Process)
	changes := float64(flood.count.Load()) / time.Since(started).Seconds()
	var delays []time.Duration
	for number := range newcomers {
		ip := n.IPv4(byte(100 + number))
		began := time.Now()
		l.Do(other.AddAddr(ip))
		_, err := a.Client.WaitBinding(within(l, patience), ip, func(lab.Binding) bool { return true })
		l.Do(err)
		delays = append(delays, time.Since(began))
	}
	flood.end(l)
	slices.Sort(delays)
	t.Logf("%.0f changes a second: %.2f of a core, rss at most %s; another pod's address known after %v, at most %v",
		changes, flooded.Cores(quiet), mebibytes(flooded.Peak), delays[len(delays)/2].Round(time.Millisecond),
		delays[len(delays)-1].Round(time.Millisecond))
	if changes < 1000 {
		t.Errorf("%.0f changes a second, too few to show anything", changes)
	}
}
