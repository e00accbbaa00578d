package scenarios

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/tests/lab"
)

// quietSources are packets from addresses of the node, or from unused ones.
var quietSources = slices.Concat(
	onOneAndMore(2, Scenario{ID: "Q4", Want: Quiet, Text: "the host's own traffic on every interface", Play: hostTraffic}),
	onOneAndMore(2, Scenario{ID: "Q13", Want: Quiet, Text: "link-local, multicast and unspecified sources", Play: sourcesOfNobody}),
)

// hostTraffic is what hostNetwork pods and processes of the nodes send: to all pods on all
// nodes, from each address of their node, and what comes back.
func hostTraffic(s *Stage) {
	docker := netip.MustParsePrefix("172.17.0.1/16")
	var pods []*lab.Pod
	for i, a := range s.Actors {
		s.Do(a.Node.AddBridge("docker0", docker))
		for _, style := range bothStyles {
			p := s.PodOn(a, fmt.Sprintf("pod-%s-%d", styleName(style), i), lab.PodOptions{Style: style, Addrs: a.Addrs(style, 4)})
			s.Sees(p, p.Addrs()...)
			pods = append(pods, p)
		}
	}
	for _, a := range s.Actors {
		n := a.Node
		own := []netip.Addr{n.Uplink(), n.IPv4(1), n.Uplink6(), n.IPv6(1)}
		s.SeesHost(n, own...)
		for _, p := range pods {
			ips := p.Addrs()
			for _, src := range append(own, docker.Addr()) {
				dst := ips[0]
				if src.Is6() {
					dst = ips[1]
				}
				s.Do(n.SendUDP(src, dst, 3))
				if src != docker.Addr() {
					s.Do(p.Ping(src))
				}
			}
			s.Do(n.Ping(ips[0]), n.Ping(ips[1]))
		}
	}
}

func sourcesOfNobody(s *Stage) {
	never := lab.IPs("169.254.1.1", "169.254.20.10", "0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255",
		"fe80::1", "fe80::ecee:eeff:feee:eeee", "ff02::1", "::", "::1")
	for i, a := range s.Actors {
		for j, style := range []lab.Style{lab.Bridged, lab.Bridged, lab.Routed, lab.Routed} {
			ips := a.Addrs(style, byte(20+j))
			p := s.PodOn(a, fmt.Sprintf("pod%d-%d", i, j), lab.PodOptions{Style: style, Addrs: ips})
			s.Talk(p, ips...)
			s.Sees(p, ips...)
			s.Do(p.Spoof(never...))
			for _, linkLocal := range []netip.Addr{never[0], never[6], never[7]} {
				s.Do(p.Announce(linkLocal))
			}
			// What the same interface sends afterwards is seen, so those were.
			mark := netip.AddrFrom4([4]byte{203, 0, 113, byte(10*i + j)})
			s.Do(p.Spoof(mark))
			s.SeesForwarded(p, mark)
		}
	}
	s.Unknown(never...)
}
