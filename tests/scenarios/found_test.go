package scenarios

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

var bothStyles = []lab.Style{lab.Bridged, lab.Routed}

func styleName(style lab.Style) string {
	if style == lab.Routed {
		return "routed"
	}
	return "bridged"
}

var mustBeFound = slices.Concat(foundOnNode, foundAnywhere, foundVLAN, foundByRule, foundInCluster, foundCNI, foundApart, foundWorld, foundNetworks, foundClaims, foundInside, foundWithPatience, foundIPv6Only, foundWithDevices, foundLiars, foundOutside, foundNodes, foundSegments, foundStrangers)

var foundOnNode = []Scenario{
	{ID: "D1", Want: Found, Text: "same node, bridge: two pods, one address", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 5)
		older := s.Pod("older", lab.PodOptions{Addrs: ips})
		s.Talk(older, ips...)
		s.Sees(older, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Addrs: ips})
		s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
	}},
	{ID: "D2", Want: Found, Text: "same node, routed /32 and /128 behind proxy ARP", Play: func(s *Stage) {
		ips := s.Addrs(lab.Routed, 5)
		older := s.Pod("older", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Talk(older, ips...)
		s.Sees(older, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
	}},
	{ID: "D9", Want: Found, Text: "a pod has an address of its node, or of its tunnel", Play: func(s *Stage) {
		tunnel := lab.IPs("10.244.100.0", "fd00:244:100::")
		s.Do(s.Node.AddTunnel("flannel.1", netip.PrefixFrom(tunnel[0], 32), netip.PrefixFrom(tunnel[1], 128)))
		host := append(tunnel, s.Node.Uplink(), s.Node.Uplink6(), s.Node.IPv4(1), s.Node.IPv6(1))
		s.SeesHost(s.Node, host...)
		for i, style := range bothStyles {
			// One starts with them, the other takes them later.
			own := s.Addrs(style, 9)
			if i == 0 {
				p := s.Pod("pod-"+styleName(style), lab.PodOptions{Style: style, Addrs: append(own, host[:2]...)})
				s.FindsHost(p.Started, p, s.Node, host[:2]...)
				continue
			}
			p := s.Pod("pod-"+styleName(style), lab.PodOptions{Style: style, Addrs: own})
			s.Sees(p, own...)
			for _, ip := range host[2:] {
				t0 := time.Now()
				s.Do(p.AddAddrOn("eth0", netip.PrefixFrom(ip, ip.BitLen())))
				s.FindsHost(t0, p, s.Node, ip)
			}
		}
	}},
}
