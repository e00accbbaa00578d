package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// The gateway of two tenants is one address on two bridges: a pod of either that takes
// it is in conflict with the node.
func TestGatewayOfTwoNetworks(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	for _, bridge := range []string{"vrf-a", "vrf-b"} {
		l.Do(n.AddBridge(bridge, netip.MustParsePrefix("10.44.0.1/24")))
	}
	c := newConfig(l, twoTenants)
	a := l.Agent(n, "--config", c.path)
	gw := netip.MustParseAddr("10.44.0.1")
	for network, bridge := range map[string]string{"tenant-a": "vrf-a", "tenant-b": "vrf-b"} {
		thief := l.Pod(n, "thief-"+bridge, lab.PodOptions{Bridge: bridge, Addrs: lab.IPs("10.44.0.9")})
		l.Do(thief.AddAddrOn("eth0", netip.PrefixFrom(gw, 32)))
		err := lab.Poll(l.Context(), patience, func() error {
			open, err := a.Client.Conflicts(l.Context(), false)
			for _, c := range open {
				if c.Network == network && c.IP == gw && c.State == "confirmed" {
					return err
				}
			}
			return errors.Join(err, fmt.Errorf("no conflict about the gateway of %s", network))
		})
		if err != nil {
			b, _ := a.Client.Bindings(l.Context(), gw)
			t.Errorf("%v\n%+v", err, b)
		}
	}
}

// A rename of a host interface does not end the conflict of a guest, whose address no
// netns lists, whatever the file declares of other networks.
func TestRenamedGuestStays(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	c := newConfig(l, "networks: [{name: docker0, scope: node}]\n")
	a := l.Agent(n, "--config", c.path)
	w := l.Watch(a)
	ip := netip.MustParseAddr("10.245.1.77")
	vm := l.Pod(n, "vm", lab.PodOptions{Style: lab.Raw})
	_, err := vm.StartGuest(lab.GuestOptions{Addr: ip, Interval: 50 * time.Millisecond})
	l.Do(err)
	l.Pod(n, "rival", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	_, err = w.WaitConfirmed(ip, patience)
	l.Do(err)
	l.Do(rename(n, vm.HostInterface, "renamed0"))
	if err := w.Never(8*time.Second, func(e lab.Event) bool { return e.Type == "resolved" }); err != nil {
		t.Error(err)
	}
}
