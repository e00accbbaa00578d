package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// quietWorld is what real clusters run besides ordinary pods.
var quietWorld = []Scenario{
	{ID: "Q29", Want: Quiet, Nodes: 2, Text: "virtual machines and engines in pods, each with the same inner addresses", Play: func(s *Stage) {
		guests := lab.IPs("10.0.2.2", "fd10:0:2::2")
		for i, a := range s.Actors {
			asker := s.PodOn(a, fmt.Sprintf("asker%d", i), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(90), a.Node.IPv6(90)}})
			for j := range 2 {
				p := s.PodOn(a, fmt.Sprintf("launcher%d-%d", i, j), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(byte(91 + j)), a.Node.IPv6(byte(91 + j))}})
				s.Sees(p, p.Addrs()...)
				s.Do(p.Sysctl("ipv4/ip_forward", "1"), p.Sysctl("ipv6/conf/all/forwarding", "1"))
				inside := p.AsNode()
				// KubeVirt's masquerade binding, and podman beside it. The rules that
				// translate are not there yet, or not any more.
				s.Do(inside.AddBridge("k6t-eth0", netip.MustParsePrefix("10.0.2.1/24"), netip.MustParsePrefix("fd10:0:2::1/120")),
					inside.AddBridge("cni-podman0", netip.MustParsePrefix("10.88.0.1/16")))
				vm := s.T.Pod(inside, p.ShortName()+"-vm", lab.PodOptions{Bridge: "k6t-eth0", Addrs: guests})
				container := s.T.Pod(inside, p.ShortName()+"-c", lab.PodOptions{Bridge: "cni-podman0", Addrs: lab.IPs("10.88.0.2")})
				s.TalkThrough(vm, lab.IPs("10.0.2.1", "fd10:0:2::1")...)
				s.TalkThrough(container, lab.IPs("10.88.0.1")...)
				s.SeesForwarded(p, guests...)
				s.SeesForwarded(p, container.Addrs()...)
			}
			// Linux answers for the inner gateways.
			for _, ip := range lab.IPs("10.0.2.1", "10.88.0.1") {
				s.Do(asker.Solicit(ip), asker.Solicit(ip))
			}
		}
		// Somebody has those addresses in the cluster's network.
		p := s.PodOn(s.Actors[1], "pod", lab.PodOptions{Style: lab.Routed, Addrs: append(guests, lab.IPs("10.88.0.2")...)})
		s.Talk(p, p.Addrs()...)
		s.Sees(p, p.Addrs()...)
	}},
	{ID: "Q30", Want: Quiet, Nodes: 2, MaySuspect: true, MinOverlap: longOverlap, Text: "live migration of a virtual machine behind its pod's bridge", Play: func(s *Stage) {
		gateways := []netip.Addr{s.Node.IPv4(1), s.Node.IPv6(1)}
		s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
			ips := s.Addrs(lab.Bridged, byte(130+try))
			pod := s.Pod(fmt.Sprintf("source%d", try), lab.PodOptions{Addrs: ips})
			source := s.bridgeBinding(pod, ips...)
			before := s.boot(source, gateways, ips...)
			s.Talk(before, ips...)
			s.Sees(source.Pod, ips...)
			// The pod at the target is there long before the machine is, with the same
			// addresses in its list.
			pod = s.PodOn(s.Actors[1], fmt.Sprintf("target%d", try), lab.PodOptions{Style: lab.Raw})
			target := s.bridgeBinding(pod, ips...)
			target.guestMAC = source.guestMAC
			s.assertQuietFor(s.row.MinOverlap + time.Second)
			since := time.Now()
			after := s.boot(target, []netip.Addr{s.Actors[1].Node.IPv4(1), s.Actors[1].Node.IPv6(1)}, ips...)
			for _, ip := range ips {
				s.Do(after.Announce(ip))
			}
			return target.Pod, ips, since, before.SetDown
		})
	}},
	{ID: "Q31", Want: Quiet, Nodes: 2, MaySuspect: true, Text: "a VIP or egress address moves between nodes, and pods send to it", Play: func(s *Stage) {
		vips := lab.IPs("192.168.77.200", "fd00:77::200")
		var pods []*lab.Pod
		for i, a := range s.Actors {
			// kube-proxy's IPVS mode has it on every node.
			s.Do(a.Node.AddDummy("kube-ipvs0"))
			p := s.PodOn(a, fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(31), a.Node.IPv6(31)}})
			s.Sees(p, p.Addrs()...)
			for _, vip := range vips {
				s.Do(a.Node.AddAddr("kube-ipvs0", netip.PrefixFrom(vip, vip.BitLen())))
			}
			pods = append(pods, p)
		}
		for round := range 4 {
			n := s.Actors[round%2].Node
			mac, err := n.MAC("eth0")
			s.Do(err)
			for _, vip := range vips {
				s.Do(n.AddAddr("eth0", netip.PrefixFrom(vip, vip.BitLen())))
				frame, err := lab.Announcement(vip, mac, 0)
				s.Do(err)
				s.Do(n.SendFrames("eth0", frame))
			}
			s.SeesHost(n, vips...)
			// Both have it in this moment.
			for i, p := range pods {
				for j, vip := range vips {
					s.Do(p.Ping(vip), s.Actors[i].Node.SendUDP(vip, p.Addrs()[j], 1))
				}
			}
			if round > 0 {
				s.drop(s.Actors[1-round%2].Node.Netns, "eth0", vips...)
			}
		}
	}},
	{ID: "Q32", Want: Quiet, MaySuspect: true, Text: "a load balancer's VIP: virtual MACs, and real servers that answer from it", Play: func(s *Stage) {
		vips := s.Addrs(lab.Bridged, 132)
		var directors []*lab.Pod
		for i := range 2 {
			p := s.Pod(fmt.Sprintf("director%d", i), lab.PodOptions{Addrs: s.Addrs(lab.Bridged, byte(133+i))})
			s.macvlan(p.Netns, "eth0", "vrrp.51", []byte{0, 0, 0x5e, 0, 1, 51})
			s.Do(p.Sysctl("ipv6/conf/vrrp.51/accept_dad", "0"))
			directors = append(directors, p)
		}
		var servers []*lab.Pod
		for i := range 3 {
			p := s.Pod(fmt.Sprintf("server%d", i), lab.PodOptions{Addrs: s.Addrs(lab.Bridged, byte(135+i))})
			s.Do(p.Sysctl("ipv4/conf/all/arp_ignore", "1"), p.Sysctl("ipv4/conf/all/arp_announce", "2"))
			for _, vip := range vips {
				s.Do(p.AddAddrOn("lo", netip.PrefixFrom(vip, vip.BitLen())))
			}
			servers = append(servers, p)
		}
		for round := range 4 {
			next := directors[round%2]
			for _, vip := range vips {
				if round > 0 {
					s.drop(directors[1-round%2].Netns, "vrrp.51", vip)
				}
				s.Do(next.AddAddrOn("vrrp.51", netip.PrefixFrom(vip, vip.BitLen())), next.Announce(vip))
			}
			for _, p := range servers {
				s.Talk(p, vips...)
			}
			s.Sees(next, vips...)
		}
		for _, p := range servers {
			s.SeesSilent(p, vips...)
		}
	}},
	{ID: "Q33", Want: Quiet, MaySuspect: true, Text: "pods that send others' frames back with the original MACs", Play: func(s *Stage) {
		// Pods of one family each: what gives a mirror away in one must do so in the other.
		for family := range 2 {
			ip := s.Addrs(lab.Bridged, 140)[family]
			victim := s.Pod(fmt.Sprintf("victim%d", family), lab.PodOptions{Addrs: []netip.Addr{ip}})
			s.Sees(victim, ip)
			for i, o := range []lab.PodOptions{{Addrs: []netip.Addr{s.Addrs(lab.Bridged, 142)[family]}}, {Style: lab.Raw}} {
				mirror := s.Pod(fmt.Sprintf("mirror%d-%d", family, i), o)
				s.reflect(mirror)
				// Also after the mirror has been asked, which takes longer on a busy machine.
				stop := s.repeats(minOverlap/2, func() error {
					return errors.Join(victim.SendUDP(ip, lab.ExternalAddr(ip), 1), victim.Announce(ip))
				})
				s.assertQuietFor(2 * minOverlap)
				s.SeesForwarded(mirror, ip)
				stop()
				s.Do(mirror.Delete())
			}
			s.Do(victim.Delete())
		}
	}},
	{ID: "Q50", Want: Quiet, MaySuspect: true, Text: "two pods send back what a stranger says whom nobody observes", Config: `
ignore:
  interfaces: [stranger0]
`, Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 150)
		stranger := s.Pod("stranger", lab.PodOptions{Addrs: ips, HostInterface: "stranger0"})
		neighbour := s.Pod("neighbour", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 151)})
		s.Sees(neighbour, neighbour.Addrs()...)
		for i := range 2 {
			_, err := s.Pod(fmt.Sprintf("mirror%d", i), lab.PodOptions{Style: lab.Raw}).SendBack()
			s.Do(err)
		}
		for end := time.Now().Add(6 * minOverlap); time.Now().Before(end); s.assertQuietFor(minOverlap / 2) {
			s.Talk(stranger, ips...)
			for _, ip := range ips {
				s.Do(stranger.Announce(ip), neighbour.Solicit(ip))
			}
		}
	}},
	{ID: "Q34", Want: Quiet, MaySuspect: true, Text: "optimistic addresses are used, and then lost to their holders", Play: func(s *Stage) {
		ip := s.Node.IPv6(34)
		holder := s.Pod("holder", lab.PodOptions{Addrs: []netip.Addr{ip}})
		s.Sees(holder, ip)
		p := s.Pod("optimist", lab.PodOptions{DAD: true, Addrs: []netip.Addr{s.Node.IPv6(35)}})
		s.Sees(p, p.Addrs()...)
		s.Do(p.Sysctl("ipv6/conf/eth0/optimistic_dad", "1"), p.Sysctl("ipv6/conf/eth0/use_optimistic", "1"))
		s.Do(p.AddAddr(ip))
		s.Do(p.Spoof(ip))
		s.Do(p.WaitDAD(patience, ip, true))
		// What the same interface sent afterwards was seen.
		mark := netip.MustParseAddr("2001:db8:34::1")
		s.Do(p.Spoof(mark))
		s.SeesForwarded(p, mark)
		s.WaitLost(p, ip)
	}},
	{ID: "Q35", Want: Quiet, Nodes: 2, MaySuspect: true, Text: "an agent is suspended while its pods' addresses go to another node", Play: func(s *Stage) {
		frozen := s.Actors[0]
		var pods []*lab.Pod
		for i, style := range bothStyles {
			p := s.Pod("old-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, byte(150+i))})
			s.Talk(p, p.Addrs()...)
			s.Sees(p, p.Addrs()...)
			pods = append(pods, p)
		}
		s.Do(unix.Kill(frozen.Agent.PID(), unix.SIGSTOP))
		for i, p := range pods {
			s.Do(p.Delete())
			next := s.PodOn(s.Actors[1], "new-"+p.ShortName(), lab.PodOptions{Style: bothStyles[i], Addrs: p.Addrs()})
			s.Talk(next, next.Addrs()...)
			s.Sees(next, next.Addrs()...)
		}
		s.WaitAlone(s.Actors[1])
		s.Do(unix.Kill(frozen.Agent.PID(), unix.SIGCONT))
		s.WaitAllMembers()
	}},
	{ID: "Q36", Want: Quiet, MaySuspect: true, Text: "a pod's veth is made again, and moves to another pod and back", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 36)
		p := s.Pod("pod", lab.PodOptions{Addrs: ips})
		s.Sees(p, ips...)
		for range 4 {
			s.recreateVeth(p, ips)
			s.Talk(p, ips...)
			s.Sees(p, ips...)
		}
		guest := s.Pod("guest", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
		for range 3 {
			s.Do(p.MoveInterface("eth0", guest, "eth0", ips...))
			s.Sees(guest, ips...)
			s.Do(guest.MoveInterface("eth0", p, "eth0", ips...))
			s.Sees(p, ips...)
		}
	}},
	{ID: "Q37", Want: Quiet, Nodes: 2, Text: "nodes that are containers, with a second uplink", Play: func(s *Stage) {
		_, uplinks := s.secondUplinks("172.19.0.", "fd00:19::")
		for i, a := range s.Actors {
			p := s.PodOn(a, fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(37)}})
			s.Sees(p, p.Addrs()...)
		}
		for range 2 {
			for i, a := range s.Actors {
				for _, ip := range uplinks[1-i] {
					s.Do(a.Node.Ping(ip))
				}
			}
			s.assertQuietFor(time.Second)
		}
		for i, a := range s.Actors {
			s.SeesHost(a.Node, uplinks[i]...)
		}
	}},
	{ID: "Q38", Want: Quiet, Text: "secondary networks of one subnet in two VLANs of one bridge", Play: func(s *Stage) {
		ips := lab.IPs("10.38.0.5", "fd00:38::5")
		for i, segment := range s.segments("br-vlans") {
			p := s.Pod(fmt.Sprintf("tenant%d", i), lab.PodOptions{Addrs: s.Addrs(lab.Bridged, byte(38+i))})
			host, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: segment.bridge, Addrs: ips})
			s.Do(err)
			s.assign(host, segment)
			s.Do(p.SendFrom("net1", ips[0], netip.MustParseAddr("10.38.0.9")), p.SendFrom("net1", ips[1], netip.MustParseAddr("fd00:38::9")))
			s.SeesIn(segment.network(), p, ips...)
		}
	}},
}
