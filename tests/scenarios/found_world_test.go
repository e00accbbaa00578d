package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundWorld are holders of the kinds that real clusters have beside ordinary pods.
var foundWorld = []Scenario{
	{ID: "D18", Want: Found, Nodes: 2, Text: "a virtual machine behind its pod's bridge and an ordinary pod", Play: func(s *Stage) {
		gateways := []netip.Addr{s.Node.IPv4(1), s.Node.IPv6(1)}
		for i, restart := range []bool{false, true} {
			ips := s.Addrs(lab.Bridged, byte(18+i))
			m := s.bridgeBinding(s.Pod(fmt.Sprintf("launcher%d", i), lab.PodOptions{Addrs: ips}), ips...)
			if restart {
				// An agent that comes later never saw the interface under its first name.
				s.Do(s.Actors[0].Agent.Stop())
				s.Restart(s.Actors[0])
				s.WaitAllMembers()
			}
			s.Talk(s.boot(m, gateways, ips...), ips...)
			s.Sees(m.Pod, ips...)
			pod := s.PodOn(s.Actors[1], fmt.Sprintf("pod%d", i), lab.PodOptions{Style: lab.Routed, Addrs: ips})
			s.Finds(pod.Started, []*lab.Pod{m.Pod, pod}, ips...)
		}
	}},
	{ID: "D19", Want: Found, Nodes: 2, Text: "the address is on a macvlan, an inner bridge, lo alone, or taken by a process", Play: func(s *Stage) {
		for i, way := range []struct {
			name string
			take func(p *lab.Pod, ips []netip.Addr)
			v4   bool
		}{
			{name: "macvlan", take: func(p *lab.Pod, ips []netip.Addr) {
				s.macvlan(p.Netns, "eth0", "vrrp.51", net.HardwareAddr{0, 0, 0x5e, 0, 1, 51})
				for _, ip := range ips {
					s.Do(p.AddAddrOn("vrrp.51", netip.PrefixFrom(ip, ip.BitLen())))
				}
			}},
			{name: "bridge", take: func(p *lab.Pod, ips []netip.Addr) {
				inside := p.AsNode()
				s.Do(inside.AddBridge("br0"))
				s.port(p, "eth0", "br0")
				for _, ip := range ips {
					s.Do(inside.AddAddr("br0", netip.PrefixFrom(ip, ip.BitLen())))
				}
			}},
			// Routed to the host, and never sends. Linux answers for IPv6 only on the device that has
			// the address.
			{name: "lo", v4: true, take: func(p *lab.Pod, ips []netip.Addr) {
				for _, own := range p.Addrs() {
					s.Do(p.DelAddr(own))
				}
				for _, ip := range ips {
					s.Do(p.AddAddrOn("lo", netip.PrefixFrom(ip, ip.BitLen())))
				}
			}},
			// gVisor reads the addresses and takes them from the kernel.
			{name: "process", take: func(p *lab.Pod, ips []netip.Addr) {
				for _, ip := range ips {
					s.Do(p.AddAddr(ip))
				}
				s.Sees(p, ips...)
				for _, ip := range slices.Concat(ips, p.Addrs()) {
					s.Do(p.DelAddr(ip))
				}
				for _, ip := range ips {
					_, err := p.StartGuest(lab.GuestOptions{Addr: ip, Interval: 100 * time.Millisecond})
					s.Do(err)
				}
			}},
		} {
			ips, own := s.Addrs(lab.Bridged, byte(30+i)), s.Addrs(lab.Bridged, byte(40+i))
			if way.v4 {
				ips, own = ips[:1], own[:1]
			}
			p := s.Pod(way.name, lab.PodOptions{Addrs: own})
			s.Sees(p, own...)
			way.take(p, ips)
			s.Sees(p, ips...)
			pod := s.PodOn(s.Actors[1], "rival-"+way.name, lab.PodOptions{Style: lab.Routed, Addrs: ips})
			s.Finds(pod.Started, []*lab.Pod{p, pod}, ips...)
		}
	}},
	{ID: "D20", Want: Found, Text: "a holder's veth is made again, or moves to another pod", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 20)
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		s.recreateVeth(older, ips)
		s.Sees(older, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Addrs: ips})
		s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
		// It is found as well when the newcomer's is made again, and when it goes to another.
		s.recreateVeth(newcomer, ips)
		s.IsBetween([]*lab.Pod{older, newcomer}, ips...)
		next := s.Pod("next", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
		s.Do(newcomer.MoveInterface("eth0", next, "eth0", ips...))
		s.IsBetween([]*lab.Pod{older, next}, ips...)
	}},
	{ID: "D21", Want: Found, Nodes: 2, Text: "the gateway's address, a bridge on the uplink, two pod bridges, two prefix lengths", Play: func(s *Stage) {
		// The gateway of the pod's own bridge.
		gateway := []netip.Addr{s.Node.IPv4(1), s.Node.IPv6(1)}
		s.SeesHost(s.Node, gateway...)
		thief := s.Pod("thief", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 21)})
		s.Sees(thief, thief.Addrs()...)
		for _, ip := range gateway {
			t0 := time.Now()
			s.Do(thief.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
			s.FindsHost(t0, thief, s.Node, ip)
		}
		// A bridge of the node itself, such as br-ex.
		other := s.Actors[1].Node
		s.Do(other.AddBridge("br-ex", netip.MustParsePrefix("192.168.78.2/24")))
		s.SeesHost(other, netip.MustParseAddr("192.168.78.2"))
		t0 := time.Now()
		s.Do(thief.AddAddrOn("eth0", netip.MustParsePrefix("192.168.78.2/32")))
		s.FindsHost(t0, thief, other, netip.MustParseAddr("192.168.78.2"))
		// Two bridges of one node for eth0.
		s.Do(s.Node.AddBridge("kube-bridge", netip.MustParsePrefix("10.44.1.1/24"), netip.MustParsePrefix("fd00:44:1::1/64")))
		ips := s.Addrs(lab.Bridged, 22)
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Bridge: "kube-bridge", Addrs: ips})
		found := s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
		// An address that is there twice, and goes once, is still there.
		s.Do(newcomer.AddAddrOn("eth0", netip.PrefixFrom(ips[0], 32)), newcomer.DelAddr(ips[0]))
		s.StaysOpen(found[0].Conflict.ID, []*lab.Pod{older, newcomer})
	}},
	{ID: "D22", Want: Found, Nodes: 2, Text: "undeclared anycast on lo, with a hint", Play: func(s *Stage) { s.anycast("lo") }},
}

// anycast gives a pod of each node the same address, on a device of the pod.
func (s *Stage) anycast(device string) {
	s.Helper()
	vip := netip.MustParseAddr("10.53.0.53")
	var pods []*lab.Pod
	var since time.Time
	for i, a := range s.Actors {
		p := s.PodOn(a, fmt.Sprintf("dns%d", i), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(53)}})
		s.Sees(p, p.Addrs()...)
		if device != "lo" {
			s.Do(p.AsNode().AddDummy(device))
		}
		s.Do(p.AddAddrOn(device, netip.PrefixFrom(vip, 32)))
		since = time.Now()
		s.Talk(p, vip)
		s.Sees(p, vip)
		pods = append(pods, p)
	}
	s.Finds(since, pods, vip)
	out, err := s.Agent().CLI(s.Context(), "explain", vip.String())
	s.Do(err)
	if !strings.Contains(out, "shared") {
		s.Errorf("nothing leads to the configuration of shared addresses:\n%s", out)
	}
}

// recreateVeth deletes a pod's veth and makes it again with the names and addresses it had.
func (s *Stage) recreateVeth(p *lab.Pod, ips []netip.Addr) {
	s.Helper()
	s.Do(p.DeleteLink())
	_, err := p.AddInterface(lab.PodOptions{HostInterface: p.HostInterface, Addrs: ips})
	s.Do(err)
}
