package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// BenchmarkSameNodeDuplicates makes 100 duplicates on one node, some at a time, and
// reports how long it takes from the moment the newcomer's interface comes up, before
// which it can have sent nothing, until the agent suspects and until it confirms.
// The agent's attaching is part of it.
func BenchmarkSameNodeDuplicates(b *testing.B) {
	const batches, batch = 20, 5
	for b.Loop() {
		l := lab.NewT(b)
		n := l.Node("")
		a := l.Agent(n, "--log-level", "info")
		w := l.Watch(a)
		var suspected, confirmed []time.Duration
		for round := range batches {
			var elders, newcomers []*lab.Pod
			var ips []netip.Addr
			for k := range batch {
				o := duplicate(n, round*batch+k)
				elders = append(elders, l.Pod(n, fmt.Sprintf("elder%d-%d", round, k), o))
				ips = append(ips, o.Addrs[0])
			}
			for k, ip := range ips {
				_, err := a.Client.WaitBinding(b.Context(), ip, func(lab.Binding) bool { return true })
				l.Do(err)
				newcomers = append(newcomers, l.Pod(n, fmt.Sprintf("newcomer%d-%d", round, k), duplicate(n, round*batch+k)))
			}
			for k, ip := range ips {
				first, err := w.WaitType("suspected", ip, patience)
				l.Do(err)
				second, err := w.WaitConfirmed(ip, patience)
				l.Do(err)
				suspected = append(suspected, first.At.Sub(newcomers[k].Started))
				confirmed = append(confirmed, second.At.Sub(newcomers[k].Started))
			}
			for k := range batch {
				l.Do(elders[k].Delete(), newcomers[k].Delete())
			}
		}
		report(b, "suspected", suspected)
		report(b, "confirmed", confirmed)
	}
}

// duplicate varies what pods are like: their style, their family, and whether they
// ever speak. Every number has an address of its own.
func duplicate(n *lab.Node, number int) lab.PodOptions {
	last := byte(10 + number)
	o := lab.PodOptions{Style: lab.Bridged, Silent: number%3 == 2}
	ip := n.IPv4(last)
	switch number % 4 {
	case 1:
		ip = n.IPv6(last)
	case 2:
		o.Style, ip = lab.Routed, n.RoutedIPv4(last)
	case 3:
		o.Style, ip = lab.Routed, n.RoutedIPv6(last)
	}
	o.Addrs = []netip.Addr{ip}
	return o
}

// report adds the median and the 99th percentile in milliseconds.
func report(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	at := func(percent int) float64 {
		return float64(all[(len(all)*percent+99)/100-1].Microseconds()) / 1000
	}
	b.ReportMetric(at(50), name+"_p50_ms")
	b.ReportMetric(at(99), name+"_p99_ms")
}
