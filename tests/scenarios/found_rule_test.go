package scenarios

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundByRule are duplicates in networks that the configuration declares.
var foundByRule = onOneAndMore(2, Scenario{
	ID: "D17", Want: Found, Text: "in a declared network; other networks have the same addresses", Config: `
networks:
  - name: storage
    match:
      peers: [net1]
      bridges: ["br-storage-*"]
  - name: edge
    match:
      interfaces: ["edge*"]
  - name: backup
    scope: node
    match:
      peers: [net1]
      bridges: [br-backup]
`, Play: func(s *Stage) {
		ips, edge := lab.IPs("10.17.0.17", "fd00:17::17"), lab.IPs("10.17.1.17", "fd00:17:1::17")
		number := 0
		name := func(what string) string {
			number++
			return fmt.Sprintf("%s%d", what, number)
		}
		join := func(a *Actor, what, bridge string) *lab.Pod {
			p := s.PodOn(a, name(what), lab.PodOptions{})
			_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: bridge, Addrs: ips})
			s.Do(err)
			return p
		}
		routed := func(a *Actor, what, device string, ips []netip.Addr) *lab.Pod {
			return s.PodOn(a, name(what), lab.PodOptions{Style: lab.Routed, HostInterface: device, Addrs: ips})
		}
		for _, a := range s.Actors {
			// By itself each bridge would be a network; the rule makes one of two.
			for _, bridge := range []string{"br-storage-1", "br-storage-2", "br-backup", "br-other"} {
				s.Do(a.Node.AddBridge(bridge, netip.MustParsePrefix("10.17.0.1/24"), netip.MustParsePrefix("fd00:17::1/64")))
			}
		}
		first, last := s.Actors[0], s.last()
		older, edgeOlder := join(first, "older", "br-storage-1"), routed(first, "edge-older", "edge1", edge)
		s.SeesIn("storage", older, ips...)
		s.SeesIn("edge", edgeOlder, edge...)
		// Lawful on every node, because that is where these networks end.
		for _, a := range s.Actors {
			s.SeesIn("backup", join(a, "backup", "br-backup"), ips...)
			s.SeesIn("net1@br-other", join(a, "other", "br-other"), ips...)
		}
		s.SeesIn("default", routed(last, "primary", "", ips), ips...)
		s.SeesIn("default", routed(last, "edge-primary", "", edge), edge...)

		inNetwork := func(want string, found []lab.Event) {
			s.Helper()
			for _, e := range found {
				if e.Conflict.Network != want {
					s.Errorf("network of the conflict about %v: got %s, want %s", e.Conflict.IP, e.Conflict.Network, want)
				}
			}
		}
		t0 := time.Now()
		newcomer := join(last, "newcomer", "br-storage-2")
		inNetwork("storage", s.Finds(t0, []*lab.Pod{older, newcomer}, ips...))
		edgeNewcomer := routed(last, "edge-newcomer", "edge2", edge)
		inNetwork("edge", s.Finds(edgeNewcomer.Started, []*lab.Pod{edgeOlder, edgeNewcomer}, edge...))
		s.onlyOpen(len(ips) + len(edge))
	},
})
