package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// foundIPv6Only are duplicates where the nodes, their gossip and the pods have no IPv4 address.
var foundIPv6Only = onOneAndMore(2, Scenario{ID: "D33", Want: Found, IPv6Only: true, Text: "nodes and pods have IPv6 only: of a pod, and of the node", Play: func(s *Stage) {
	for _, style := range bothStyles {
		ips := s.Addrs(style, 33)
		older := s.Pod("older-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		s.Talk(older, ips...)
		s.Sees(older, ips...)
		newcomer := s.PodOn(s.last(), "newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
	}
	other := s.last().Node
	host := []netip.Addr{other.Uplink6(), other.IPv6(1)}
	s.SeesHost(other, host...)
	taker := s.Pod("taker", lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, 34)})
	s.Sees(taker, taker.Addrs()...)
	for _, ip := range host {
		t0 := time.Now()
		s.Do(taker.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
		s.FindsHost(t0, taker, other, ip)
	}
	s.gossipByIPv6()
}})

// quietIPv6Only is what such clusters do lawfully.
var quietIPv6Only = []Scenario{
	{ID: "Q46", Want: Quiet, IPv6Only: true, Nodes: 2, Text: "nodes and pods have IPv6 only: many pods, DAD, agents restarted; IPv4 is translated, from one address on every node", Play: func(s *Stage) {
		var pods []*lab.Pod
		for i, a := range s.Actors {
			s.translateIPv4(a.Node)
			for j := range 10 {
				style := bothStyles[j%2]
				pods = append(pods, s.PodOn(a, fmt.Sprintf("pod%d-%d", i, j), lab.PodOptions{Style: style, Addrs: a.Addrs(style, byte(10+j)), DAD: j < 2}))
			}
			// Amazon's EKS gives each pod an interface for IPv4 to leave the node by, with addresses that other nodes give, too.
			exit := lab.IPs("169.254.172.2")
			s.Do(a.Node.AddBridge("egress", netip.MustParsePrefix("169.254.172.1/22")))
			p := pods[len(pods)-1]
			_, err := p.AddInterface(lab.PodOptions{Interface: "v4if0", Bridge: "egress", Addrs: exit})
			s.Do(err, p.SendFrom("v4if0", exit[0], netip.MustParseAddr("169.254.172.1")))
		}
		for _, p := range pods {
			if p.Options().DAD {
				s.Do(p.WaitDAD(patience, p.Addrs()[0], false))
			}
			s.Talk(p, p.Addrs()...)
			s.Sees(p, p.Addrs()...)
		}
		s.Do(s.Agent().Stop(), s.Actors[1].Agent.Kill())
		for _, a := range s.Actors {
			s.Restart(a, "--bind", "::") // it advertises the address of the default route
		}
		s.WaitAllMembers()
		s.gossipByIPv6()
		for _, p := range pods {
			s.Sees(p, p.Addrs()...)
		}
		s.Unknown(lab.IPs("169.254.172.2")...)
	}},
}

// translateIPv4 gives a node the device by which programs without IPv6 reach the world (464XLAT, RFC 6877). It has the
// address that all such nodes have (RFC 7335) and the default route of IPv4.
func (s *Stage) translateIPv4(n *lab.Node) {
	s.Helper()
	s.Do(n.AddBridge("clat", netip.MustParsePrefix("192.0.0.1/32")))
	device, err := n.Netlink().LinkByName("clat")
	s.Do(err, n.Netlink().RouteAdd(&netlink.Route{
		LinkIndex: device.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: make(net.IPMask, 4)}, Scope: netlink.SCOPE_LINK,
	}))
}

// gossipByIPv6 fails the scenario if an agent is reached by IPv4.
func (s *Stage) gossipByIPv6() {
	s.Helper()
	if len(s.Actors) == 1 {
		return
	}
	for _, a := range s.Actors {
		members, err := a.Agent.Client.Members(s.Context())
		s.Do(err)
		for _, m := range members {
			if at, err := netip.ParseAddrPort(m.Address); err != nil || !at.Addr().Is6() {
				s.Errorf("%s reaches %s at %q, want an IPv6 address", a.Node.ShortName(), m.Name, m.Address)
			}
		}
	}
}
