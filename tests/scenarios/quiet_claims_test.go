package scenarios

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// quietClaims are announcements of addresses that a pod has on other devices, as lawful workloads send them.
var quietClaims = slices.Concat(
	onOneAndMore(2, Scenario{ID: "Q41", Want: Quiet, Text: "two interfaces with ARP flux on overlapping subnets", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 61)[:1]
		innocent := s.Pod("innocent", lab.PodOptions{Addrs: ips})
		s.Sees(innocent, ips...)
		a := s.last()
		p := s.PodOn(a, "flux", lab.PodOptions{Addrs: a.Addrs(lab.Bridged, 62)})
		s.Sees(p, p.Addrs()...)
		s.Do(a.Node.AddBridge("br-net1"))
		_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "br-net1", Addrs: ips})
		s.Do(err)
		s.SeesIn("net1@br-net1", p, ips...)
		// Linux answers on eth0 for the address of net1, and some announce all addresses on all devices.
		s.Do(p.Announce(ips[0]))
		s.SeesForwarded(p, ips...)
	}}),
	[]Scenario{
		{ID: "Q42", Want: Quiet, Nodes: 2, Text: "pods that are nodes have kube-ipvs0, docker0 and virbr0, and announce their addresses on eth0", Play: func(s *Stage) {
			shared := lab.IPs("10.96.0.1", "172.17.0.1", "192.168.122.1")
			for i, a := range s.Actors {
				for j := range 2 {
					p := s.PodOn(a, fmt.Sprintf("kind%d-%d", i, j), lab.PodOptions{Addrs: a.Addrs(lab.Bridged, byte(64+j))})
					s.Sees(p, p.Addrs()...)
					inside := p.AsNode()
					s.Do(inside.AddDummy("kube-ipvs0"), inside.AddAddr("kube-ipvs0", netip.PrefixFrom(shared[0], 32)),
						inside.AddBridge("docker0", netip.PrefixFrom(shared[1], 16)), inside.AddBridge("virbr0", netip.PrefixFrom(shared[2], 24)))
					for _, ip := range shared {
						s.Do(p.Announce(ip))
					}
					s.seesWhere(a.Node, p.Name+" claims", func(b lab.Binding) bool { return b.Netns == p.Name && b.Evidence == "claimed" }, shared)
				}
			}
		}},
		{ID: "Q43", Want: Quiet, MaySuspect: true, Text: "keepalived with the VIP on lo: it moves, with gratuitous ARP", Play: func(s *Stage) {
			vip := s.Node.IPv4(66)
			var pods []*lab.Pod
			for i := range 2 {
				p := s.Pod(fmt.Sprintf("vrrp%d", i), lab.PodOptions{Addrs: s.Addrs(lab.Bridged, byte(67+i))})
				s.Sees(p, p.Addrs()...)
				pods = append(pods, p)
			}
			for i := range 4 {
				master, backup := pods[i%2], pods[(i+1)%2]
				if i > 0 {
					lo, err := backup.Netlink().LinkByName("lo")
					s.Do(err, backup.Netlink().AddrDel(lo, &netlink.Addr{IPNet: netlink.NewIPNet(vip.AsSlice())}))
				}
				s.Do(master.AddAddrOn("lo", netip.PrefixFrom(vip, 32)), master.Announce(vip))
				s.Sees(master, vip)
			}
		}},
		{ID: "Q44", Want: Quiet, MaySuspect: true, Text: "LVS-DR: the director has the VIP, real servers have it on lo and send from it, with arp_announce 0", Play: func(s *Stage) {
			vip := s.Node.IPv4(69)
			director := s.Pod("director", lab.PodOptions{Addrs: []netip.Addr{s.Node.IPv4(70)}})
			s.Do(director.AddAddr(vip), director.Announce(vip))
			s.Sees(director, vip)
			for i := range 2 {
				p := s.Pod(fmt.Sprintf("real%d", i), lab.PodOptions{Addrs: []netip.Addr{s.Node.IPv4(byte(71 + i))}})
				s.Sees(p, p.Addrs()...)
				s.Do(p.Sysctl("ipv4/conf/all/arp_ignore", "1", "ipv4/conf/all/arp_announce", "0"), p.AddAddrOn("lo", netip.PrefixFrom(vip, 32)))
				s.Talk(p, vip) // the request for the next hop has the VIP as its sender
			}
			s.Sees(director, vip)
		}},
		{ID: "Q45", Want: Quiet, MaySuspect: true, Text: "a transparent proxy takes all marked packets by a local route in a table of its own, and sends from its clients' addresses", Play: func(s *Stage) {
			ips := s.Addrs(lab.Bridged, 73)[:1]
			client := s.Pod("client", lab.PodOptions{Addrs: ips})
			s.Sees(client, ips...)
			proxy := s.Pod("proxy", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 74)})
			s.Sees(proxy, proxy.Addrs()...)
			rule := netlink.NewRule()
			rule.Mark, rule.Table = 1, 100
			s.Do(proxy.Netlink().RuleAdd(rule))
			s.Do(proxy.AddLocalRoute("lo", netip.MustParsePrefix("0.0.0.0/0"), rule.Table))
			for range 3 {
				s.Do(proxy.Spoof(ips...))
			}
			s.SeesForwarded(proxy, ips...)
		}},
	},
)
