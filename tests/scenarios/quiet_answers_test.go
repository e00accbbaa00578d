package scenarios

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// quietAnswers are questions about addresses that others have, and answers for such.
var quietAnswers = slices.Concat(
	onOneAndMore(2, Scenario{ID: "Q12", Want: Quiet, Text: "probes for an address that another pod holds", Play: probes}),
	[]Scenario{{ID: "Q12", Want: Quiet, Text: "a pod and a guest whose duplicate detection fails", Play: failedDetection}},
	onOneAndMore(2, Scenario{ID: "Q24", Want: Quiet, Text: "two pods and the host answer for their own docker0", Play: answersForDocker}),
	onOneAndMore(2, Scenario{ID: "Q25", Want: Quiet, Text: "a pod with proxy ARP answers for other pods", Play: proxyAnswers}),
)

func probes(s *Stage) {
	for _, style := range bothStyles {
		ips := s.Addrs(style, 12)
		holder := s.Pod("holder-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
		s.Sees(holder, ips...)
		for i, proberStyle := range bothStyles {
			at := s.last()
			own := at.Addrs(proberStyle, 13)
			if style == lab.Routed {
				own = at.Addrs(proberStyle, 14)
			}
			prober := s.PodOn(at, fmt.Sprintf("prober-%s-%d", styleName(style), i), lab.PodOptions{Style: proberStyle, Addrs: own})
			s.Sees(prober, own...)
			for range 5 {
				for _, ip := range ips {
					s.Do(prober.Probe(ip))
				}
			}
			// What the same interface sent after the probes was seen.
			marks := lab.IPs("198.51.100.12", "2001:db8:12::1")
			s.Do(prober.Spoof(marks...))
			s.SeesForwarded(prober, marks...)
		}
		s.probeByGuest(styleName(style), ips, byte(style))
	}
}

// probeByGuest sends probes from an interface whose addresses cannot be listed: only the form of the
// packets shows that they are no announcements.
func (s *Stage) probeByGuest(name string, ips []netip.Addr, number byte) {
	s.Helper()
	at := s.last()
	vm := s.PodOn(at, "vm-"+name, lab.PodOptions{Style: lab.Raw})
	for _, ip := range ips {
		for range 5 {
			s.Do(vm.Probe(ip))
		}
	}
	// It is seen with this, and may well have it.
	mark := netip.AddrFrom4([4]byte{198, 51, 100, 100 + number})
	s.Do(vm.Spoof(mark))
	s.Sees(vm, mark)
}

func failedDetection(s *Stage) {
	ips := s.Addrs(lab.Bridged, 12)
	holder := s.Pod("holder", lab.PodOptions{Addrs: ips})
	s.Sees(holder, ips...)
	// A pod whose duplicate address detection fails keeps the address in its list.
	own := s.Addrs(lab.Bridged, 13)[:1]
	failed := s.Pod("failed", lab.PodOptions{DAD: true, Addrs: append(own, ips[1])})
	s.Do(failed.WaitDAD(patience, ips[1], true))
	s.Sees(failed, own...)
	// A guest that detects the conflict and gives up; sometimes before its first probe, because it
	// has received the holder's packets.
	for try := 0; ; try++ {
		vm := s.Pod(fmt.Sprintf("vm%d", try), lab.PodOptions{Style: lab.Raw})
		probes, err := s.Node.Tap(vm.HostInterface, nil)
		s.Do(err)
		g, err := vm.StartGuest(lab.GuestOptions{Addr: ips[0], Detect: true})
		s.Do(err)
		if err := g.Owned(s.Context()); err == nil {
			s.Errorf("the guest took an address that is held")
		}
		if probes.Count() > 0 {
			return
		}
		if try == 9 {
			s.Fatal("no guest ever probed")
		}
	}
}

func answersForDocker(s *Stage) {
	docker := netip.MustParsePrefix("172.17.0.1/16")
	for _, a := range s.Actors {
		s.Do(a.Node.AddBridge("docker0", docker))
	}
	for i := range 2 {
		a := s.Actors[i%len(s.Actors)]
		p := s.PodOn(a, fmt.Sprintf("engine%d", i), lab.PodOptions{Addrs: a.Addrs(lab.Bridged, byte(70+i))})
		s.Sees(p, p.Addrs()...)
		s.Do(p.AsNode().AddBridge("docker0", docker))
		asker := s.PodOn(a, fmt.Sprintf("asker%d", i), lab.PodOptions{Addrs: a.Addrs(lab.Bridged, byte(24+i))})
		for range 3 {
			s.Do(asker.Solicit(docker.Addr()))
		}
		s.SeesForwarded(p, docker.Addr())
	}
}

func proxyAnswers(s *Stage) {
	at := s.last()
	proxyIPs, ips := at.Addrs(lab.Bridged, 25), s.Addrs(lab.Bridged, 26)
	proxy := s.PodOn(at, "proxy", lab.PodOptions{Addrs: proxyIPs})
	s.Sees(proxy, proxyIPs...)
	s.Do(proxy.Sysctl("ipv4/ip_forward", "1"), proxy.Sysctl("ipv6/conf/all/forwarding", "1"),
		proxy.Sysctl("ipv4/conf/eth0/proxy_arp", "1"), proxy.Sysctl("ipv6/conf/eth0/proxy_ndp", "1"),
		proxy.Sysctl("ipv4/neigh/eth0/proxy_delay", "0"), proxy.Sysctl("ipv6/neigh/eth0/proxy_delay", "0"))
	// It answers for what it believes to be behind another device.
	inside := proxy.AsNode()
	s.Do(inside.AddBridge("tunnel0"), proxy.RouteVia("tunnel0", netip.PrefixFrom(ips[0], 32)), proxyNDP(proxy, ips[1]))
	holder := s.Pod("holder", lab.PodOptions{Addrs: ips})
	asker := s.PodOn(at, "asker", lab.PodOptions{Addrs: at.Addrs(lab.Bridged, 27)})
	s.Sees(holder, ips...)
	for range 3 {
		for _, ip := range ips {
			s.Do(asker.Solicit(ip))
		}
	}
	s.SeesForwarded(proxy, ips...)
	s.Sees(holder, ips...)
}

// proxyNDP makes a pod answer neighbour solicitations for an address that it does not have. The
// sysctl proxy_ndp must be on.
func proxyNDP(p *lab.Pod, a netip.Addr) error {
	index, err := p.Ifindex(p.Interface)
	if err != nil {
		return err
	}
	return p.Netlink().NeighAdd(&netlink.Neigh{LinkIndex: index, Family: unix.AF_INET6, Flags: netlink.NTF_PROXY, IP: a.AsSlice()})
}
