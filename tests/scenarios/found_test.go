package scenarios

import (
	"net"
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

var mustBeFound = slices.Concat(foundOnNode, foundByRule, foundInCluster, foundApart)

// foundByRule are duplicates in networks that the configuration declares.
var foundByRule = []Scenario{
	{ID: "D17", Want: Found, Text: "in a declared network; lawful twins in other networks", Config: `
networks:
  - name: storage
    match:
      peers: [net1]
      bridges: ["br-storage-*"]
  - name: backup
    scope: node
    match:
      peers: [net1]
      bridges: [br-backup]
`, Story: func(s *Stage) {
		ips := lab.IPs("10.17.0.17", "fd00:17::17")
		join := func(name, bridge string, n byte) *lab.Pod {
			p := s.Pod(name, lab.PodOptions{Addrs: s.Addrs(lab.Bridged, n)})
			_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: bridge, Addrs: ips})
			s.Do(err)
			return p
		}
		// By itself each bridge would be a network; the rule makes one of two.
		for _, bridge := range []string{"br-storage-1", "br-storage-2", "br-backup", "br-other"} {
			s.Do(s.Node.AddBridge(bridge, netip.MustParsePrefix("10.17.0.1/24"), netip.MustParsePrefix("fd00:17::1/64")))
		}
		elder := join("elder", "br-storage-1", 17)
		lawful := []*lab.Pod{
			join("backup", "br-backup", 18), join("other", "br-other", 19),
			s.Pod("primary", lab.PodOptions{Style: lab.Routed, Addrs: ips}),
		}
		for _, p := range append(lawful, elder) {
			s.Sees(p, ips...)
		}
		t0 := time.Now()
		newcomer := join("newcomer", "br-storage-2", 20)
		for _, e := range s.Finds(t0, []*lab.Pod{elder, newcomer}, ips...) {
			if e.Conflict.Network != "storage" {
				s.Errorf("network of the conflict: got %s, want storage", e.Conflict.Network)
			}
		}
		open, err := s.Agent().Client.Conflicts(s.Context(), false)
		s.Do(err)
		if len(open) != len(ips) {
			s.Errorf("conflicts: got %+v, want those in storage only", open)
		}
	}},
}

var foundOnNode = []Scenario{
	{ID: "D1", Want: Found, Text: "same node, bridge: two pods, one address", Story: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 5)
		elder := s.Pod("elder", lab.PodOptions{Addrs: ips})
		s.Talk(elder, ips...)
		s.Sees(elder, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Addrs: ips})
		s.Finds(newcomer.Started, []*lab.Pod{elder, newcomer}, ips...)
	}},
	{ID: "D2", Want: Found, Text: "same node, routed /32 and /128 behind proxy ARP", Story: func(s *Stage) {
		ips := s.Addrs(lab.Routed, 5)
		elder := s.Pod("elder", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Talk(elder, ips...)
		s.Sees(elder, ips...)
		newcomer := s.Pod("newcomer", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Finds(newcomer.Started, []*lab.Pod{elder, newcomer}, ips...)
	}},
	{ID: "D5", Want: Found, Text: "the elder is silent, the newcomer talks", Story: func(s *Stage) {
		for _, style := range bothStyles {
			ips := s.Addrs(style, 5)
			elder := s.Pod("elder-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
			// The newcomer comes up without a word; its first packet is a datagram.
			newcomer := s.Pod("newcomer-"+styleName(style), lab.PodOptions{Style: style, Silent: true})
			for _, ip := range ips {
				s.Sees(elder, ip)
				from := time.Now()
				s.Do(newcomer.AddAddr(ip))
				t0 := time.Now()
				s.Do(newcomer.Spoof(ip))
				s.FindsEarly(from, t0, []*lab.Pod{elder, newcomer}, ip)
			}
		}
	}},
	{ID: "D6", Want: Found, Text: "both silent: never a packet of their own", Story: func(s *Stage) {
		for _, style := range bothStyles {
			ips := s.Addrs(style, 6)
			elder := s.Pod("elder-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
			from := time.Now()
			newcomer := s.Pod("newcomer-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips, Silent: true})
			s.FindsEarly(from, newcomer.Started, []*lab.Pod{elder, newcomer}, ips...)
		}
	}},
	{ID: "D8", Want: Found, Text: "both holders have the same MAC", Story: func(s *Stage) {
		mac := net.HardwareAddr{0x0a, 0x58, 10, 244, 1, 8}
		for _, style := range bothStyles {
			ips := s.Addrs(style, 8)
			o := lab.PodOptions{Style: style, Addrs: ips, MAC: mac}
			elder := s.Pod("elder-"+styleName(style), o)
			s.Sees(elder, ips...)
			newcomer := s.Pod("clone-"+styleName(style), o)
			for _, e := range s.Finds(newcomer.Started, []*lab.Pod{elder, newcomer}, ips...) {
				for _, h := range e.Conflict.Holders {
					if h.MAC != mac.String() {
						s.Errorf("mac of %s: got %s, want %s", h.Netns, h.MAC, mac)
					}
				}
			}
		}
	}},
	{ID: "D9", Want: Found, Text: "a pod has an address of its node, or of its tunnel", Story: func(s *Stage) {
		tunnel := lab.IPs("10.244.100.0", "fd00:244:100::")
		s.Do(s.Node.AddTunnel("flannel.1", netip.PrefixFrom(tunnel[0], 32), netip.PrefixFrom(tunnel[1], 128)))
		host := append(tunnel, s.Node.Uplink(), s.Node.Uplink6(), s.Node.IPv4(1), s.Node.IPv6(1))
		s.SeesHost(s.Node, host...)
		for i, style := range bothStyles {
			// One is born with them, the other takes them later.
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
	{ID: "D14", Want: Found, Text: "the duplicate is inside one VLAN", Story: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 14)
		guest := func(name string, vlan uint16) *lab.Pod {
			vm := s.Pod(name, lab.PodOptions{Style: lab.Raw})
			for _, ip := range ips {
				// The agent cannot list a guest's addresses, and the first words are
				// gone before it has attached: the guest goes on talking.
				_, err := vm.StartGuest(lab.GuestOptions{Addr: ip, VLAN: vlan, Talk: 100 * time.Millisecond})
				s.Do(err)
			}
			return vm
		}
		elder := guest("elder", 42)
		s.Sees(elder, ips...)
		// Lawful: other VLANs, and an untagged pod, have the address as well.
		s.Sees(guest("other-vlan", 43), ips...)
		s.Sees(guest("untagged", 0), ips...)
		t0 := time.Now()
		newcomer := guest("newcomer", 42)
		for _, e := range s.Finds(t0, []*lab.Pod{elder, newcomer}, ips...) {
			if e.Conflict.Network == "default" {
				s.Errorf("network of the conflict: got %s, want one for the VLAN", e.Conflict.Network)
			}
		}
		s.Expect(ips...)
		open, err := s.Agent().Client.Conflicts(s.Context(), false)
		s.Do(err)
		if len(open) != len(ips) {
			s.Errorf("conflicts: got %+v, want those of one VLAN", open)
		}
	}},
	{ID: "D15", Want: Found, Text: "ip addr add inside a running pod", Story: func(s *Stage) {
		for _, style := range bothStyles {
			ips := s.Addrs(style, 15)
			elder := s.Pod("elder-"+styleName(style), lab.PodOptions{Style: style, Addrs: ips})
			taker := s.Pod("taker-"+styleName(style), lab.PodOptions{Style: style, Addrs: s.Addrs(style, 16)})
			s.Sees(elder, ips...)
			s.Sees(taker, s.Addrs(style, 16)...)
			for _, ip := range ips {
				t0 := time.Now()
				s.Do(taker.AddAddr(ip))
				s.Finds(t0, []*lab.Pod{elder, taker}, ip)
			}
		}
	}},
	{ID: "D16", Want: Found, Text: "it ends when one pod dies, and comes back", Story: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 5)
		o := lab.PodOptions{Addrs: ips}
		elder := s.Pod("elder", o)
		s.Sees(elder, ips...)
		newcomer := s.Pod("newcomer", o)
		first := s.Finds(newcomer.Started, []*lab.Pod{elder, newcomer}, ips...)
		// Once by deletion as a runtime does it, once the address alone goes.
		s.Do(newcomer.Delete())
		for _, e := range first {
			s.Resolves(e.Conflict.ID, 8*time.Second)
		}
		again := s.Pod("again", o)
		second := s.Finds(again.Started, []*lab.Pod{elder, again}, ips...)
		ids := slices.Concat(conflictIDs(first), conflictIDs(second))
		slices.Sort(ids)
		if len(slices.Compact(ids)) != 2*len(ips) {
			s.Errorf("ids of the conflicts are not all different: %q", ids)
		}
		for _, ip := range ips {
			s.Do(again.DelAddr(ip))
		}
		for _, e := range second {
			s.Resolves(e.Conflict.ID, 8*time.Second)
		}
		open, err := s.Agent().Client.Conflicts(s.Context(), false)
		s.Do(err)
		if len(open) > 0 {
			s.Errorf("conflicts still open: %+v", open)
		}
		all, err := s.Agent().Client.Conflicts(s.Context(), true)
		s.Do(err)
		if len(all) != 2*len(ips) {
			s.Errorf("conflicts in the history: got %d, want %d", len(all), 2*len(ips))
		}
	}},
}

func conflictIDs(events []lab.Event) []string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.Conflict.ID)
	}
	return ids
}
