package scenarios

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/tests/lab"
)

// quietNetworks are addresses that exist several times and belong to different networks.
var quietNetworks = slices.Concat(
	// The lab is faster than any plugin: a pod sends within the millisecond that its agent needs to
	// notice that it has joined a bridge.
	onOneAndMore(2, Scenario{ID: "Q8", Want: Quiet, MaySuspect: true, Text: "one address in two declared networks", Config: `
networks:
  - name: tenant-a
    match: {bridges: [vrf-a]}
  - name: tenant-b
    match: {bridges: [vrf-b]}
  - name: edge
    match: {interfaces: ["edge*"], cidrs: [10.44.0.0/16, "fd00:44::/64"]}
`, Play: declaredNetworks}),
	onOneAndMore(2, Scenario{ID: "Q9", Want: Quiet, Text: "anycast and a VIP that are declared shared", Config: `
shared: [10.9.9.53, 10.9.10.0/24, "fd00:9::/64"]
`, Play: sharedAddresses}),
	[]Scenario{{ID: "Q14", Want: Quiet, Text: "one pod, several interfaces and lo, one address", Config: `
networks:
  - name: fabric
    match: {peers: [net1, net2]}
`, Play: oneAddressTwice}},
	quietOnEveryNode,
)

func declaredNetworks(s *Stage) {
	ips := lab.IPs("10.44.0.8", "fd00:44::8")
	for i, a := range s.Actors {
		for _, bridge := range []string{"vrf-a", "vrf-b"} {
			s.Do(a.Node.AddBridge(bridge, netip.MustParsePrefix("10.44.0.1/24"), netip.MustParsePrefix("fd00:44::1/64")))
		}
		// Neighbours of the first node have the same addresses in other networks.
		pods := map[string]lab.PodOptions{
			"tenant-a": {Bridge: "vrf-a"}, "tenant-b": {Bridge: "vrf-b"},
			"edge": {Style: lab.Routed, HostInterface: "edge1"}, "default": {Style: lab.Routed},
		}
		for j, network := range slices.Sorted(maps.Keys(pods)) {
			if len(s.Actors) > 1 && j%2 != i {
				continue
			}
			o := pods[network]
			o.Addrs = ips
			p := s.PodOn(a, "in-"+network, o)
			s.Talk(p, ips...)
			s.SeesIn(network, p, ips...)
		}
	}
}

func sharedAddresses(s *Stage) {
	shared := lab.IPs("10.9.9.53", "10.9.10.9", "fd00:9::9")
	for i, a := range s.Actors {
		for _, style := range bothStyles {
			for j := range 2 {
				p := s.PodOn(a, fmt.Sprintf("%s-%d-%d", styleName(style), i, j), lab.PodOptions{Style: style, Addrs: a.Addrs(style, byte(90+j))})
				for _, ip := range shared {
					s.Do(p.AddAddr(ip))
				}
				s.Talk(p, shared...)
				s.Sees(p, shared...)
			}
		}
		if n := s.Suppressed(a, "shared"); n != len(shared) {
			s.Errorf("suppressed as shared at %s: %d, want %d", a.Node.ShortName(), n, len(shared))
		}
	}
	if len(s.Actors) == 1 {
		return
	}
	// One holder on each node: no node is notified of another, so there is nothing to suppress.
	apart := lab.IPs("10.9.10.10", "fd00:9::10")
	for i, a := range s.Actors {
		p := s.PodOn(a, fmt.Sprintf("apart-%d", i), lab.PodOptions{Style: lab.Routed, Addrs: apart})
		s.Talk(p, apart...)
		s.Sees(p, apart...)
	}
}

// oneAddressTwice is a pod with an address on several devices, which a rule counts to one
// network, and on lo.
func oneAddressTwice(s *Stage) {
	ips := s.Addrs(lab.Bridged, 14)
	p := s.Pod("pod", lab.PodOptions{Addrs: ips})
	s.Sees(p, ips...)
	for _, device := range []string{"net1", "net2"} {
		bridge := "br-" + device
		s.Do(s.Node.AddBridge(bridge))
		host, err := p.AddInterface(lab.PodOptions{Interface: device, Bridge: bridge, Addrs: ips})
		s.Do(err)
		s.Attached(s.last(), host) // or the interface of before has the last word
		for _, ip := range ips {
			s.Do(p.SendFrom(device, ip, ip.Next()))
		}
		s.seesWhere(s.Node, p.Name+" on "+device, func(b lab.Binding) bool {
			return b.Netns == p.Name && b.Interface == host && b.Network == "fabric" && holds(b)
		}, ips)
	}
	for _, ip := range ips {
		s.Do(p.AddAddrOn("lo", netip.PrefixFrom(ip, ip.BitLen())))
	}
	s.Talk(p, ips...)
	// The same at a routed pod, with the address on lo alone in a second one's way.
	routed := s.Addrs(lab.Routed, 14)
	q := s.Pod("routed", lab.PodOptions{Style: lab.Routed, Addrs: routed})
	for _, ip := range routed {
		s.Do(q.AddAddrOn("lo", netip.PrefixFrom(ip, ip.BitLen())))
	}
	s.Talk(q, routed...)
	s.Sees(q, routed...)
}

// quietOnEveryNode is what every node has and no other node minds.
var quietOnEveryNode = []Scenario{
	{ID: "Q7", Want: Quiet, Nodes: 2, Text: "docker0 with its own 172.17.0.2 on two nodes", Play: func(s *Stage) {
		container := lab.IPs("172.17.0.2", "fd00:17::2")
		for i, a := range s.Actors {
			for _, bridge := range []string{"docker0", "br-0123456789ab"} {
				s.Do(a.Node.AddBridge(bridge, netip.MustParsePrefix("172.17.0.1/16"), netip.MustParsePrefix("fd00:17::1/64")))
				c := s.PodOn(a, fmt.Sprintf("%s-%d", bridge, i), lab.PodOptions{Bridge: bridge, Addrs: container})
				s.Talk(c, container...)
				s.SeesIn(bridge, c, container...)
			}
		}
		// The cluster may use that range as well.
		p := s.Pod("pod", lab.PodOptions{Style: lab.Routed, Addrs: container})
		s.Talk(p, container...)
		s.SeesIn("default", p, container...)
	}},
	{ID: "Q26", Want: Quiet, Nodes: 2, Text: "net1 with one subnet on the bridges of two nodes", Play: func(s *Stage) {
		ips := lab.IPs("10.10.0.5", "fd00:10::5")
		for i, a := range s.Actors {
			n := a.Node
			s.Do(n.AddBridge("br-net1", netip.MustParsePrefix("10.10.0.1/24"), netip.MustParsePrefix("fd00:10::1/64")))
			p := s.T.Pod(n, fmt.Sprintf("multus%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(26), n.IPv6(26)}})
			_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "br-net1", Addrs: ips})
			s.Do(err)
			s.Do(p.SendFrom("net1", ips[0], netip.MustParseAddr("10.10.0.1")), p.SendFrom("net1", ips[1], netip.MustParseAddr("fd00:10::1")))
			s.SeesIn("net1@br-net1", p, ips...)
		}
		// Somebody has it in the cluster's network.
		p := s.Pod("pod", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Talk(p, ips...)
		s.Sees(p, ips...)
	}},
	{ID: "Q27", Want: Quiet, Nodes: 2, Text: "kube-ipvs0 and nodelocaldns on two nodes", Play: func(s *Stage) {
		services := lab.IPs("10.96.0.1", "10.96.0.10", "fd00:96::a")
		for i, a := range s.Actors {
			n := a.Node
			s.Do(n.AddDummy("kube-ipvs0"), n.AddDummy("nodelocaldns"))
			for _, ip := range services {
				s.Do(n.AddAddr("kube-ipvs0", netip.PrefixFrom(ip, ip.BitLen())))
			}
			for _, text := range []string{"169.254.20.10/32", "10.96.0.10/32"} {
				s.Do(n.AddAddr("nodelocaldns", netip.MustParsePrefix(text)))
			}
			ips := []netip.Addr{n.IPv4(27), n.IPv6(27)}
			p := s.T.Pod(n, fmt.Sprintf("client%d", i), lab.PodOptions{Addrs: ips})
			// The node answers from the service's address, and sends from it.
			for _, ip := range services {
				s.Do(p.Ping(ip))
				dst := ips[0]
				if ip.Is6() {
					dst = ips[1]
				}
				s.Do(n.SendUDP(ip, dst, 3))
			}
			s.Sees(p, ips...)
		}
		// A pod behind which the service is reached another way.
		egress := s.Pod("egress", lab.PodOptions{Style: lab.Routed, Addrs: s.Addrs(lab.Routed, 27)})
		s.Sees(egress, egress.Addrs()...)
		s.Do(egress.Spoof(services...))
		s.SeesForwarded(egress, services...)
	}},
}
