package core

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/core/coretest"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestStrangers: who else is heard with addresses of the node, or of a pod of it, on the segment that joins the nodes, and for which the node asks.
func TestStrangers(t *testing.T) {
	ownMAC, other := net.HardwareAddr{2, 0, 0, 0, 0, 7}, detector.MAC{2, 9}
	const own, vip, pod = "192.168.7.1", "203.0.113.7", "192.168.7.50"
	others := []string{"192.168.7.51", "10.244.1.1", "10.244.1.9"} // nobody's, the gateway of pods, and one of those
	for name, test := range map[string]struct {
		device      string
		mac         detector.MAC
		lost        bool
		want, asked []string
	}{
		"another machine":              {"eth0", other, false, []string{pod, vip}, []string{vip}},
		"this node's own announcement": {"eth0", detector.MAC(ownMAC), false, []string{pod}, nil},
		"on another segment":           {"eth1", other, false, nil, nil},
		"all nodes are lost":           {"eth1", other, true, nil, []string{own}},
	} {
		l := newHarnessOn(t, "", own)
		var asked []string
		l.Ask = func(_ string, ip netip.Addr) error {
			asked = append(asked, ip.String())
			return nil
		}
		var list []links.HostAddress
		for _, ip := range []string{own, vip} {
			addr := netip.MustParseAddr(ip)
			subnet := netip.PrefixFrom(addr, addr.BitLen())
			if ip == own {
				subnet = netip.MustParsePrefix("192.168.7.0/24")
			}
			list = append(list, links.HostAddress{IP: addr, Subnet: subnet, Device: "eth0", Index: 9, MAC: ownMAC})
		}
		list = append(list, links.HostAddress{IP: netip.MustParseAddr(others[1]), Subnet: netip.MustParsePrefix("10.244.1.0/24"), Device: "cni0", Index: 10})
		l.Update(links.Event{Kind: links.HostAddresses, Host: list})
		p := l.add(t, 2, 42, pod, others[2])
		for _, ip := range []string{pod, others[2]} {
			l.Record(coretest.Seen(p, bpf.Answer, ip, l.now))
		}
		l.Turn()
		for range 2 {
			l.now = l.now.Add(11 * time.Second)
			for _, ip := range []string{vip, pod} {
				l.Heard(test.device, netip.MustParseAddr(ip), test.mac, l.now)
			}
			for _, ip := range others {
				l.Heard(test.device, netip.MustParseAddr(ip), detector.MAC{2, 8}, l.now)
			}
		}
		var got []string
		for _, s := range l.LookForStrangers(test.lost) {
			got = append(got, s.IP.String())
		}
		if !slices.Equal(got, test.want) || !slices.Equal(asked, test.asked) {
			t.Errorf("%s: heard with %q, want %q; asked for %q, want %q", name, got, test.want, asked, test.asked)
		}
	}
}
