package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// A pod whose kernel has no address may be a virtual machine: if it answers for a neighbour's
// address, it counts as a holder.
func TestClaimWithoutKernelAddress(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv4(5)
	older := l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{ip}})
	machine := l.Pod(n, "machine", lab.PodOptions{Style: lab.Raw})
	// Its first packets are sent before the agent has attached, so it keeps sending.
	_, err := machine.StartGuest(lab.GuestOptions{Addr: ip, Interval: 100 * time.Millisecond})
	l.Do(err)
	event, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	wantHolders(l, event, older, machine)
}

// Two pods in league claim the same addresses, hundreds of them, again and again, and answer
// no question. That takes verification's time, but not that of a real duplicate.
func TestAccomplices(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n, "--log-level", "info")
	w := l.Watch(a)
	ip := n.IPv4(5)
	bridge, err := n.MAC(lab.Bridge)
	l.Do(err)
	older := l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{ip}})
	before := l.Usage(a.Process)
	var floods []*flood
	for number := range 2 {
		accomplice := l.Pod(n, fmt.Sprint("accomplice", number), lab.PodOptions{Style: lab.Raw})
		mac, err := accomplice.MAC("eth0")
		l.Do(err)
		floods = append(floods, floodFrames(l, accomplice, 400, func(number int) []byte {
			claimed := netip.AddrFrom4([4]byte{10, 77, 0, byte(number % 250)})
			return lab.Ethernet(bridge, mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPReply, mac, claimed, bridge, n.IPv4(1)))
		}))
	}
	l.Eventually("the addresses are claimed", func() error {
		for _, flood := range floods {
			if sent := flood.count.Load(); sent < 2000 {
				return fmt.Errorf("%d frames sent", sent)
			}
		}
		return nil
	})
	newcomer := l.Pod(n, "newcomer", lab.PodOptions{Addrs: []netip.Addr{ip}})
	event, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	wantHolders(l, event, older, newcomer)
	after := l.Usage(a.Process)
	for _, flood := range floods {
		flood.end(l)
	}
	types := make(map[string]int)
	for _, e := range w.Events() {
		types[e.Type]++
	}
	s, err := statusOf(l, a)
	l.Do(err)
	took := event.At.Sub(newcomer.Started)
	t.Logf("confirmed after %v, %.2f of a core, rss at most %s; events %v, %d solicitations put off", took.Round(time.Millisecond),
		after.Cores(before), mebibytes(after.Peak), types, s.Dropped["solicitation rate"])
}
