package scenarios

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// foundNetworks are holders that hide behind what a pod can change of its own interfaces.
var foundNetworks = []Scenario{
	{ID: "D27", Want: Found, Text: "a pod moves its eth0 into a nested netns, names it net7, and takes a neighbour's address", Play: func(s *Stage) {
		s.hides(func(move func()) { move() })
	}},
	{ID: "D27", Want: Found, Text: "the same while the agent is down", Play: func(s *Stage) {
		s.hides(func(move func()) {
			s.Do(s.Agent().Stop())
			move()
			s.Restart(s.Actors[0])
			s.Do(s.Agent().WaitReady(s.Context()))
			s.Actors[0].Watch = s.T.Watch(s.Agent())
		})
	}},
	{ID: "D28", Want: Found, Nodes: 2, Text: "net1 on the bridge of the primary interfaces, with a neighbour's address", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 28)
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		p := s.Pod("multus", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 29)})
		t0 := time.Now()
		_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "cni0", Addrs: ips})
		s.Do(err)
		s.Finds(t0, []*lab.Pod{older, p}, ips...)
	}},
}

// hides has a pod move and rename its interface, and take a neighbour's addresses.
func (s *Stage) hides(when func(move func())) {
	s.Helper()
	own, ips := s.Addrs(lab.Bridged, 26), s.Addrs(lab.Bridged, 27)
	older, p := s.Pod("older", lab.PodOptions{Addrs: ips}), s.Pod("pod", lab.PodOptions{Addrs: own})
	s.Sees(older, ips...)
	s.Sees(p, own...)
	nested := s.Pod("nested", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
	when(func() { s.Do(p.MoveInterface("eth0", nested, "net7", own...)) })
	s.Sees(nested, own...)
	t0 := time.Now()
	for _, ip := range ips {
		s.Do(nested.AddAddrOn("net7", netip.PrefixFrom(ip, ip.BitLen())))
	}
	s.Finds(t0, []*lab.Pod{older, nested}, ips...)
}

// foundClaims are holders that have the address on another device than the one that they announce it on.
var foundClaims = append(onOneAndMore(2, Scenario{ID: "D29", Want: Found, Text: "a pod has a neighbour's address on a bridge of its own or an inner veth, and announces it on eth0", Play: func(s *Stage) {
	for i, device := range []string{"bridge", "veth"} {
		ips := s.Addrs(lab.Bridged, byte(60+i))[:1]
		older := s.Pod("older-"+device, lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		thief := s.PodOn(s.last(), "thief-"+device, lab.PodOptions{Addrs: s.last().Addrs(lab.Bridged, byte(70+i))})
		s.Sees(thief, thief.Addrs()...)
		inside := thief.AsNode()
		if device == "bridge" {
			s.Do(inside.AddBridge("inner", netip.PrefixFrom(ips[0], 32)))
		} else {
			s.Do(thief.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "inner"}, PeerName: "inner1"}))
			link, err := thief.Netlink().LinkByName("inner")
			s.Do(err, thief.Netlink().LinkSetUp(link), thief.AddAddrOn("inner", netip.PrefixFrom(ips[0], 32)))
		}
		t0 := time.Now()
		s.Do(thief.Announce(ips[0]))
		s.Finds(t0, []*lab.Pod{older, thief}, ips...)
	}
}}), onOneAndMore(2, Scenario{ID: "D32", Want: Found, Text: "a pod has a neighbour's address by a local route only: on its interface, in a range on lo, on a bridge of its own", Play: func(s *Stage) {
	for i, device := range []string{"eth0", "lo", "inner"} {
		ips := s.Addrs(lab.Bridged, byte(82+i))[:1]
		older := s.Pod("older-"+device, lab.PodOptions{Addrs: ips})
		s.Sees(older, ips...)
		thief := s.PodOn(s.last(), "thief-"+device, lab.PodOptions{Addrs: s.last().Addrs(lab.Bridged, byte(86+i))})
		s.Sees(thief, thief.Addrs()...)
		if device == "inner" {
			s.Do(thief.AsNode().AddBridge(device))
		}
		s.Do(thief.AddLocalRoute(device, netip.PrefixFrom(ips[0], 32-2*i).Masked(), unix.RT_TABLE_LOCAL))
		t0 := time.Now()
		s.Do(thief.Announce(ips[0]))
		s.Finds(t0, []*lab.Pod{older, thief}, ips...)
	}
}})...)
