package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// A holder that does not answer probes for a second loses its binding, though only packets may have
// been lost: as long as the address is configured in its netns it is probed again, both while that
// prevents a confirmation and while it would end a conflict.
func TestSilentForAWhile(t *testing.T) {
	for style, name := range map[lab.Style]string{lab.Bridged: "bridged", lab.Routed: "routed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silentHolder(lab.NewT(t), style)
		})
	}
}

func silentHolder(l *lab.T, style lab.Style) {
	a := l.Agent(l.Node(""))
	n := a.Node
	ip, other := n.IPv4(10), n.IPv4(11)
	if style == lab.Routed {
		ip, other = n.RoutedIPv4(10), n.RoutedIPv4(11)
	}
	older := l.Pod(n, "older", lab.PodOptions{Style: style, Addrs: []netip.Addr{ip}})
	_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Netns == older.Name })
	l.Do(err)
	newcomer := l.Pod(n, "newcomer", lab.PodOptions{Style: style, Addrs: []netip.Addr{other}})
	silent := func(yes bool) {
		value := "0"
		if yes {
			value = "8" // it answers for none of its addresses
		}
		l.Do(newcomer.Sysctl("ipv4/conf/all/arp_ignore", value))
	}
	w := l.Watch(a)
	silent(true)
	l.Do(newcomer.AddAddr(ip))
	l.Eventually("a suspicion that fades", func() error {
		l.Do(newcomer.Announce(ip))
		_, err := w.WaitType("faded", ip, 2*time.Second)
		return err
	})
	silent(false)
	e, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	// And once it is a conflict.
	silent(true)
	_, err = w.WaitType("resolved", ip, patience)
	l.Do(err)
	silent(false)
	_, err = w.Wait(patience, func(next lab.Event) bool {
		return next.Type == "confirmed" && next.Conflict.IP == ip && next.Conflict.ID != e.Conflict.ID
	})
	l.Do(err)
}

// Each of a thousand silent addresses of a pod is found. Meanwhile the silent pods that come are found as
// soon as if there was no such pod.
func TestThousandSilentAddresses(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	c := newConfig(l, "limits: {bindingsPerInterface: 2000, refreshPerSecond: 1000}")
	a := l.Agent(n, "--config", c.path)
	w := l.Watch(a)
	crowd := l.Pod(n, "crowd", lab.PodOptions{Silent: true})
	const many = 1000
	for i := range many {
		l.Do(crowd.AddAddr(netip.AddrFrom4([4]byte{10, 66, byte(i / 250), byte(i%250 + 1)})))
	}
	ip := n.IPv4(5)
	for _, name := range []string{"older", "newcomer"} {
		l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{ip}, Silent: true})
	}
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	l.Eventually("all addresses are found", func() error {
		s, err := statusOf(l, a)
		if err == nil && s.Bindings["announced"] < many+2 {
			err = fmt.Errorf("%v, want %d announced; dropped %v", s.Bindings, many+2, s.Dropped)
		}
		return err
	})
	s, err := statusOf(l, a)
	l.Do(err)
	if n := s.Dropped["packets over the limits"]; n > 0 {
		t.Errorf("%d answers were not recorded: the pod was probed faster than the observer records its answers", n)
	}
}
