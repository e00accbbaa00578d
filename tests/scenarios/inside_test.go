package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// inside makes a pod whose device of a kind sends by the uplink of its node.
func (s *Stage) inside(a *Actor, name, kind string, ips ...netip.Addr) *lab.Pod {
	s.Helper()
	return s.PodOn(a, name, lab.PodOptions{Style: lab.Inside, Device: kind, Addrs: ips})
}

// newcomerInside is a duplicate between two such pods of a kind.
func newcomerInside(kind string) func(*Stage) {
	return func(s *Stage) {
		ips := s.Node.SegmentAddrs(210)
		older := s.inside(s.Actors[0], "older", kind, ips...)
		s.Sees(older, ips...)
		newcomer := s.inside(s.last(), "newcomer", kind, ips...)
		s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
	}
}

// thiefInside is a pod of a kind with an address of a node.
func thiefInside(kind string) func(*Stage) {
	return func(s *Stage) {
		thief := s.inside(s.last(), "thief", kind, s.Node.SegmentAddrs(211)...)
		for _, ip := range []netip.Addr{s.Node.Uplink(), s.Node.Uplink6()} {
			t0 := time.Now()
			s.Do(thief.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
			s.FindsHost(t0, thief, s.Node, ip)
		}
	}
}

// handoverInside gives the address of a pod of a kind that is gone to another one; more have addresses of their own.
func handoverInside(kind string) func(*Stage) {
	return func(s *Stage) {
		ips := s.Node.SegmentAddrs(213)
		for i, a := range s.Actors {
			own := s.Node.SegmentAddrs(byte(214 + i))
			s.Sees(s.inside(a, "own-"+a.Node.ShortName(), kind, own...), own...)
		}
		first := s.inside(s.Actors[0], "first", kind, ips...)
		s.Sees(first, ips...)
		s.Do(first.Delete())
		s.Sees(s.inside(s.Actors[1], "second", kind, ips...), ips...)
	}
}

// behindDirectorInside has a pod of a kind with an address, and real servers that have it on lo, send from it and do not answer for it
// (LVS-DR).
func behindDirectorInside(kind, arpAnnounce string) func(*Stage) {
	return func(s *Stage) {
		vips := s.Node.SegmentAddrs(216)
		director := s.inside(s.Actors[0], "director", kind, vips...)
		s.Sees(director, vips...)
		server := s.inside(s.last(), "server", kind, s.Node.SegmentAddrs(217)...)
		s.Sees(server, server.Addrs()...)
		s.Do(server.Sysctl("ipv4/conf/all/arp_ignore", "1", "ipv4/conf/all/arp_announce", arpAnnounce))
		for i, client := range []netip.Addr{s.Node.Uplink(), s.Node.Uplink6()} {
			s.Do(server.AddAddrOn("lo", netip.PrefixFrom(vips[i], vips[i].BitLen())), server.SendUDP(vips[i], client, 1))
		}
		s.SeesSilent(server, vips[1]) // nothing announces this one
		s.Sees(director, vips...)
	}
}

// segmentOfAllNodes joins what is behind eth1 of all nodes to one network.
const segmentOfAllNodes = `
networks:
  - name: segment
    match: {bridges: [eth1]}
`

// foundInside are duplicates among devices that have no end on the node. The kernel refuses those of two ipvlan devices on one device
// of a node.
var foundInside = slices.Concat(
	onOneAndMore(2, with(lab.Macvlan, Scenario{ID: "D34", Want: Found, Text: "on the uplink", Play: newcomerInside("macvlan")})),
	onOneAndMore(2, with(lab.Macvlan, Scenario{ID: "D41", Want: Found, Text: "a virtual machine behind a macvlan device, for whose address others ask", Play: func(s *Stage) {
		ips, a := s.Node.SegmentAddrs(218), s.last()
		older, liar := s.inside(s.Actors[0], "older", "macvlan", ips...), s.inside(a, "liar", "macvlan")
		s.Sees(older, ips...)
		eth0, err := liar.Netlink().LinkByName("eth0")
		s.Do(err, liar.Netlink().LinkSetAllmulticastOn(eth0)) // or no solicitation reaches the guest
		for _, ip := range ips {
			_, err := liar.StartGuest(lab.GuestOptions{Addr: ip})
			s.Do(err)
		}
		neighbour := s.inside(a, "neighbour", "macvlan", s.Node.SegmentAddrs(219)...)
		s.Sees(neighbour, neighbour.Addrs()...)
		s.findsDeaf(neighbour, []*lab.Pod{older, liar}, ips)
	}})),
	onOneAndMore(2, with(lab.Macvlan, Scenario{ID: "D35", Want: Found, Text: "a pod has the address of a node", Play: thiefInside("macvlan")})),
	[]Scenario{
		with(lab.Macvlan, Scenario{ID: "D34", Want: Found, Nodes: 2, Text: "on the uplink, in mode private; 2 nodes", Play: newcomerInside("macvlan-private")}),
		with(lab.Macvlan, Scenario{
			ID: "D34", Want: Found, Nodes: 2, Config: segmentOfAllNodes, Text: "in mode passthru, on a device that the configuration joins across nodes; 2 nodes",
			Play: func(s *Stage) {
				for _, a := range s.Actors {
					s.Do(a.Node.AddSegment("eth1"))
				}
				var pods []*lab.Pod
				ips := lab.IPs("10.7.0.7", "fd07::7")
				for _, a := range s.Actors { // each has the one device that there can be
					p := s.PodOn(a, "pod-"+a.Node.ShortName(), lab.PodOptions{Style: lab.Inside, Device: "macvlan-passthru", Parent: "eth1", Addrs: ips})
					s.SeesIn("segment", p, ips...)
					pods = append(pods, p)
				}
				s.Finds(pods[1].Started, pods, ips...)
			},
		}),
		with(lab.IPVlan, Scenario{ID: "D34", Want: Found, Nodes: 2, Text: "on the uplink, in mode L2; 2 nodes", Play: newcomerInside("ipvlan")}),
		with(lab.IPVlan, Scenario{ID: "D34", Want: Found, Nodes: 2, Text: "on the uplink, in mode L3; 2 nodes", Play: newcomerInside("ipvlan-l3")}),
		with(lab.IPVlan, Scenario{ID: "D34", Want: Found, Nodes: 2, Text: "on the uplink, in mode L3S; 2 nodes", Play: newcomerInside("ipvlan-l3s")}),
		with(lab.IPVlan, Scenario{ID: "D35", Want: Found, Nodes: 2, Text: "a pod has the address of a node; 2 nodes", Play: thiefInside("ipvlan")}),
		with(lab.VLAN, Scenario{ID: "D34", Want: Found, Nodes: 2, Text: "a VLAN device in each pod, on the uplink; 2 nodes", Play: newcomerInside("vlan-100")}),
		// canonical/microk8s issue 3008.
		{ID: "D36", Want: Found, Nodes: 2, Text: "the real macvlan plugin with a store of host-local on each node", Play: func(s *Stage) {
			nw := lab.CNINetwork{Plugin: map[string]any{"type": "macvlan", "master": lab.UplinkName}, Subnets: []string{"10.88.0.0/24"}}
			var pods []*lab.Pod
			var last *lab.CNIPod
			for _, a := range s.Actors {
				p, err := s.CNI(a.Node).Add("pod-"+a.Node.ShortName(), nw)
				s.Do(err)
				s.Sees(p.Pod, p.Addrs()...)
				pods, last = append(pods, p.Pod), p
			}
			s.FindsEarly(last.Started, last.Usable(last.Addrs()[0]), pods, last.Addrs()...)
		}},
		with(lab.Macvlan, Scenario{ID: "D37", Want: Found, Nodes: 2, Text: "an address that was left on an unused device, and a pod that uses it", Play: func(s *Stage) {
			ips := s.Node.SegmentAddrs(212)
			unused := s.PodOn(s.Actors[0], "unused", lab.PodOptions{Style: lab.Inside, Addrs: ips, Silent: true})
			s.Sees(unused, ips...)
			user := s.inside(s.Actors[1], "user", "macvlan", ips...)
			s.Do(user.SendUDP(ips[0], s.Node.SegmentAddrs(99)[0], 1), user.SendUDP(ips[1], s.Node.SegmentAddrs(99)[1], 1))
			s.Finds(user.Started, []*lab.Pod{unused, user}, ips...)
		}}),
	},
)

// quietInside are lawful pods with such devices.
var quietInside = []Scenario{
	with(lab.Macvlan, Scenario{ID: "Q47", Want: Quiet, Nodes: 2, MaySuspect: true, Text: "on a segment of one node only, the same addresses on the other's: a finding", Play: func(s *Stage) {
		ips := lab.IPs("10.7.0.7", "fd07::7")
		for _, a := range s.Actors {
			s.Do(a.Node.AddSegment("eth1"))
			p := s.PodOn(a, "own-"+a.Node.ShortName(), lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: ips})
			s.Sees(p, ips...)
		}
		for _, ip := range ips {
			s.findsTwin(s.Actors[0], s.Actors[1], ip, false)
			s.findsTwin(s.Actors[1], s.Actors[0], ip, false)
		}
		s.pastes("If each node has a segment of its own there")
		s.infers(s.Actors[0], "eth1", false)
		s.assertQuietFor(2 * vipOverlap)
		for _, a := range s.Actors {
			s.noFindings(a)
		}
	}}),
	with(lab.Macvlan, Scenario{
		ID: "Q32", Want: Quiet, Nodes: 2, Text: "a load balancer's VIP, and a real server that sends from it", MaySuspect: true, Play: behindDirectorInside("macvlan", "2"),
	}),
	with(lab.Macvlan, Scenario{ID: "Q44", Want: Quiet, Nodes: 2, Text: "LVS-DR with arp_announce 0", MaySuspect: true, Play: behindDirectorInside("macvlan", "0")}),
	with(lab.Macvlan, Scenario{ID: "Q48", Want: Quiet, Nodes: 2, Text: "pods with addresses of their own; one goes, and another gets its addresses", MaySuspect: true, Play: handoverInside("macvlan")}),
	with(lab.IPVlan, Scenario{ID: "Q48", Want: Quiet, Nodes: 2, Text: "pods with addresses of their own; one goes, and another gets its addresses", MaySuspect: true, Play: handoverInside("ipvlan")}),
	with(lab.VLAN, Scenario{ID: "Q47", Want: Quiet, Nodes: 2, Text: "a VLAN device in each pod, on the uplink, in different VLANs; the same addresses", Play: func(s *Stage) {
		ips := s.Node.SegmentAddrs(210)
		for i, a := range s.Actors {
			s.Sees(s.inside(a, "own-"+a.Node.ShortName(), fmt.Sprint("vlan-", 100+i), ips...), ips...)
		}
	}}),
}
