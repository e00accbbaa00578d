package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// explained waits until dupip explains an address with these words and without others. Line breaks do not count.
func explained(t *lab.T, a *lab.Agent, ip netip.Addr, want, not []string) {
	t.Helper()
	t.Eventually("the explanation of "+ip.String(), func() error {
		out, err := a.CLI(t.Context(), "explain", ip.String())
		if err != nil {
			return err
		}
		text := strings.Join(strings.Fields(out), " ")
		for _, w := range want {
			if !strings.Contains(text, w) {
				return fmt.Errorf("no %q in\n%s", w, out)
			}
		}
		for _, w := range not {
			if strings.Contains(text, w) {
				return fmt.Errorf("%q in\n%s", w, out)
			}
		}
		return nil
	})
}

// The verdict agrees with the holders below it: two nodes have the address on links of their own, which is no conflict.
func TestExplainNodesOwnAddress(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	agents := l.Cluster(2)
	ip := netip.MustParseAddr("10.64.139.20")
	for _, a := range agents {
		l.Do(a.Node.AddSegment("eth1", netip.PrefixFrom(ip, 32)))
	}
	for _, a := range agents {
		explained(l, a, ip, []string{
			"Verdict: two nodes have it as their own address, and not on one segment as far as is known: not a conflict.",
			"host on node " + agents[0].Node.ShortName(), "host on node " + agents[1].Node.ShortName(),
		}, []string{"one live holder"})
	}
}

// A pod's duplicate address detection fails because its own packet comes back: nobody else has the address, and dupip does not
// say so. When another pod has it, it does, and when that has gone, it says that, too.
func TestExplainFailedDetection(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	ip := n.IPv6(5)
	looped := l.Pod(n, "looped", lab.PodOptions{DAD: true, Addrs: []netip.Addr{n.IPv4(6)}})
	port, err := n.Netlink().LinkByName(looped.HostInterface)
	l.Do(err, n.Netlink().LinkSetHairpin(port, true))
	// Without the nonce of RFC 7527 the kernel takes its own solicitation for another's.
	l.Do(looped.Sysctl("ipv6/conf/all/enhanced_dad", "0", "ipv6/conf/eth0/enhanced_dad", "0"))
	l.Do(looped.AddAddr(ip), looped.WaitDAD(patience, ip, true))

	failed := looped.Name + ": duplicate address detection failed in its kernel, which does not use the address."
	never := []string{"another holder had", "lost to another holder"}
	explained(l, a, ip, []string{failed + " Another holder was not seen"}, never)
	holder := l.Pod(n, "holder", lab.PodOptions{Addrs: []netip.Addr{ip}})
	explained(l, a, ip, []string{failed + " Now " + holder.Name + " has the address."}, append(never, "was not seen"))
	l.Do(holder.Delete())
	explained(l, a, ip, []string{failed + " " + holder.Name + " was seen with the address, and has it no more."}, append(never, "was not seen", "Now "))
}
