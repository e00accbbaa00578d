package scenarios

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/tests/lab"
)

// quietForwarding are packets from addresses that the pod itself does not have. Who has
// them is on the first node, who forwards is on the last one.
var quietForwarding = slices.Concat(
	onOneAndMore(2, Scenario{ID: "Q5", Want: Quiet, Text: "a forwarding pod emits other pods' addresses", Play: forwardingPod}),
	onOneAndMore(2, Scenario{ID: "Q5", Want: Quiet, MaySuspect: true, Text: "a router in a virtual machine", Play: forwardingGuest}),
	onOneAndMore(2, Scenario{ID: "Q20", Want: Quiet, Text: "a container engine nested in each of two pods", Play: nestedEngines}),
)

func forwardingPod(s *Stage) {
	at := s.last()
	far := s.Pod("far", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 52)})
	s.Sees(far, far.Addrs()...)
	routerIPs, clientIPs := at.Addrs(lab.Bridged, 50), at.Addrs(lab.Bridged, 51)
	router := s.PodOn(at, "router", lab.PodOptions{Addrs: routerIPs})
	s.Sees(router, routerIPs...)
	s.Do(router.Sysctl("ipv4/ip_forward", "1"), router.Sysctl("ipv6/conf/all/forwarding", "1"),
		router.Sysctl("ipv4/conf/all/send_redirects", "0"), router.Sysctl("ipv4/conf/eth0/send_redirects", "0"))
	client := s.PodOn(at, "client", lab.PodOptions{Addrs: clientIPs})
	s.Do(client.DefaultRoute(routerIPs...))
	s.Talk(client, clientIPs...)
	s.Sees(client, clientIPs...)
	s.SeesForwarded(router, clientIPs...)
	// A VPN or egress pod on a routed interface: addresses of other pods, and unused ones.
	egress := s.PodOn(at, "egress", lab.PodOptions{Style: lab.Routed, Addrs: at.Addrs(lab.Routed, 50)})
	s.Sees(egress, egress.Addrs()...)
	others := slices.Concat(clientIPs, far.Addrs(), lab.IPs("10.8.0.6", "fd00:8::6"))
	for range 3 {
		s.Do(egress.Spoof(others...))
	}
	s.SeesForwarded(egress, others...)
	// Where the holder is on the same node, there was something to suppress.
	want := len(clientIPs)
	if at == s.Actors[0] {
		want += len(far.Addrs())
	}
	if n := s.Suppressed(at, "forwarded"); n != want {
		s.Errorf("suppressed as forwarded: %d, want %d", n, want)
	}
	s.Sees(client, clientIPs...)
	s.Sees(far, far.Addrs()...)
}

// forwardingGuest is a router whose addresses cannot be listed: what it emits counts until it does
// not answer, and not again after that.
func forwardingGuest(s *Stage) {
	at := s.last()
	var others []netip.Addr
	for _, style := range bothStyles {
		p := s.Pod("far-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 53)})
		s.Sees(p, p.Addrs()...)
		others = append(others, p.Addrs()...)
	}
	vm := s.PodOn(at, "vm", lab.PodOptions{Style: lab.Raw})
	own := at.Addrs(lab.Bridged, 54)
	s.startGuests(vm, lab.GuestOptions{}, own)
	s.Sees(vm, own...)
	s.Do(vm.Spoof(others...))
	s.SeesForwarded(vm, others...)
	for range 3 {
		s.Do(vm.Spoof(others...))
	}
	// What the same interface sent afterwards was seen.
	mark := lab.IPs("198.51.100.5")
	s.Do(vm.Spoof(mark...))
	s.seesWhere(at.Node, vm.Name, func(b lab.Binding) bool { return b.Netns == vm.Name }, mark)
	for _, ip := range others {
		if n := at.suspicions(ip); n > 1 {
			s.Errorf("%v was suspected %d times, want once at most", ip, n)
		}
	}
}

func nestedEngines(s *Stage) {
	nested := lab.IPs("172.17.0.2", "fd00:17::2")
	for i, style := range bothStyles {
		a := s.Actors[i%len(s.Actors)]
		p := s.PodOn(a, fmt.Sprintf("engine%d", i), lab.PodOptions{Style: style, Addrs: a.Addrs(style, byte(60+i))})
		s.Sees(p, p.Addrs()...)
		s.Do(p.Sysctl("ipv4/ip_forward", "1"), p.Sysctl("ipv6/conf/all/forwarding", "1"))
		inside := p.AsNode()
		s.Do(inside.AddBridge("docker0", netip.MustParsePrefix("172.17.0.1/16"), netip.MustParsePrefix("fd00:17::1/64")))
		// Not translated on its way out, as with a broken or absent NAT rule.
		c := s.T.Pod(inside, fmt.Sprintf("container%d", i), lab.PodOptions{Bridge: "docker0", Addrs: nested})
		s.TalkThrough(c, lab.IPs("172.17.0.1", "fd00:17::1")...)
		s.SeesForwarded(p, nested...)
	}
}
