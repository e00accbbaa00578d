package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// manyOwn are more addresses than an agent compares of one node.
const manyOwn = 4200

// A pod has the main address of its node, or that at which the node receives gossip. The node has so many others that sort before it that
// not all are compared.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		device string // that has the many addresses
		count  int
		gossip bool // at an address that is not the main one
	}{
		{"70 on another device", "eth1", 70, false},
		{"more than are compared, on another device", "eth1", manyOwn, false},
		{"more than are compared, on the main device", lab.UplinkName, manyOwn, false},
		{"gossip on a bridge, more than are compared on another device", "eth1", manyOwn, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := lab.NewT(t)
			n, other := l.Node(""), l.Node("")
			if test.device != lab.UplinkName {
				l.Do(n.AddBridge(test.device))
			}
			for i := range test.count {
				v4 := netip.AddrFrom4([4]byte{10, 64, byte(139 + i>>8), byte(i)})
				v6 := netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x64, 14: byte(i >> 8), 15: byte(i)})
				l.Do(n.AddAddr(test.device, netip.PrefixFrom(v4, 32)), n.AddAddr(test.device, netip.PrefixFrom(v6, 128)))
			}
			main, on := []netip.Addr{n.Uplink(), n.Uplink6()}, n
			agents := []*lab.Agent{}
			if test.gossip {
				// The pod is on the other node: there it disturbs no gossip.
				main, on = append(main, n.IPv4(1)), other
				for _, n := range []*lab.Node{n, other} {
					a, err := n.StartAgent(slices.Concat(n.ClusterFlags(), []string{"--bind", n.IPv4(1).String(), "--join", "10.244.1.1", "--join", "10.244.2.1"})...)
					l.Do(err)
					agents = append(agents, a)
				}
				l.WaitCluster(agents...)
			} else {
				agents = append(agents, l.Agent(n))
			}
			l.Eventually("the addresses of the node", func() error {
				s, err := statusOf(l, agents[0])
				if err != nil {
					return err
				}
				for _, ip := range main {
					if !slices.Contains(s.HostAddresses, ip.String()) {
						return fmt.Errorf("%v is not among the %d addresses of the node that are compared", ip, len(s.HostAddresses))
					}
				}
				all := 2*test.count + 4 // those of eth0 and cni0
				if len(s.HostAddresses)+s.HostAddressesOmitted != all {
					return fmt.Errorf("%d addresses are compared and %d are not, want %d together", len(s.HostAddresses), s.HostAddressesOmitted, all)
				}
				return nil
			})
			taker := l.Pod(on, "taker", lab.PodOptions{Style: lab.Routed})
			began := time.Now()
			for _, ip := range main {
				l.Do(taker.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
			}
			for _, ip := range main {
				for _, a := range agents {
					l.Eventually("conflict about "+ip.String(), func() error {
						open, err := a.Client.Conflicts(t.Context(), false)
						if i := slices.IndexFunc(open, func(c lab.Conflict) bool { return c.IP == ip }); err == nil && (i < 0 || open[i].State != "confirmed" || open[i].Scope != "pod-host") {
							err = fmt.Errorf("%s: %+v", a.Node.ShortName(), open)
						}
						return err
					})
				}
			}
			t.Logf("%v confirmed after %.1f s", main, time.Since(began).Seconds())
			checkOmitted(l, agents[0])
		})
	}
}

// checkOmitted checks that each way to look at an agent says how many addresses of the node are not compared.
func checkOmitted(l *lab.T, a *lab.Agent) {
	l.Helper()
	s, err := statusOf(l, a)
	l.Do(err)
	metrics, err := a.Scrape(l.Context())
	l.Do(err)
	if n := metrics["dupip_host_addresses_omitted"]; n != float64(s.HostAddressesOmitted) {
		l.Errorf("the metric says %v, the status %d", n, s.HostAddressesOmitted)
	}
	for _, args := range [][]string{{"status"}, {"doctor"}} {
		text, _ := a.CLI(l.Context(), args...) // the doctor may have found something else
		if said := strings.Contains(text, "not compared"); said != (s.HostAddressesOmitted > 0) {
			l.Errorf("%d addresses of the node are not compared, \"dupip %s\" says that: %t\n%s", s.HostAddressesOmitted, args[0], said, text)
		}
	}
}
