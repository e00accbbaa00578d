package e2e

import (
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
