package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// foundVLAN are duplicates inside VLANs. The tag is in the packet when a guest made it, and
// beside it when a kernel did.
var foundVLAN = slices.Concat(
	onOneAndMore(2, Scenario{ID: "D14", Want: Found, Text: "inside one VLAN, the tag in the packet", Play: func(s *Stage) {
		s.inOneVLAN(s.Addrs(lab.Bridged, 14), func(a *Actor, name string, vlan uint16, ips []netip.Addr) *lab.Pod {
			vm := s.PodOn(a, name, lab.PodOptions{Style: lab.Raw})
			s.startGuests(vm, lab.GuestOptions{VLAN: vlan}, ips)
			return vm
		})
	}}),
	onOneAndMore(2, Scenario{ID: "D14", Want: Found, Text: "inside one VLAN, the tag beside the packet", Play: func(s *Stage) {
		s.inOneVLAN(s.Addrs(lab.Bridged, 14), func(a *Actor, name string, vlan uint16, ips []netip.Addr) *lab.Pod {
			p := s.PodOn(a, name, lab.PodOptions{})
			if vlan != 0 {
				s.Do(tagVLAN(p, vlan))
			}
			for _, ip := range ips {
				s.Do(p.AddAddr(ip))
			}
			s.Talk(p, ips...)
			for _, ip := range ips {
				s.Do(p.Announce(ip))
			}
			return p
		})
	}}),
)

// inOneVLAN plays a duplicate of a pod in VLAN 42, while pods in other VLANs may have the address.
func (s *Stage) inOneVLAN(ips []netip.Addr, pod func(a *Actor, name string, vlan uint16, ips []netip.Addr) *lab.Pod) {
	s.Helper()
	older := pod(s.Actors[0], "older", 42, ips)
	s.SeesIn("default.42", older, ips...)
	s.SeesIn("default.43", pod(s.last(), "other-vlan", 43, ips), ips...)
	s.SeesIn("default", pod(s.last(), "untagged", 0, ips), ips...)
	t0 := time.Now()
	newcomer := pod(s.last(), "newcomer", 42, ips)
	for _, e := range s.Finds(t0, []*lab.Pod{older, newcomer}, ips...) {
		if e.Conflict.Network != "default.42" {
			s.Errorf("network of the conflict: got %s, want default.42", e.Conflict.Network)
		}
	}
	s.onlyOpen(len(ips))
}

// SeesIn is Sees for a holder in a network.
func (s *Stage) SeesIn(network string, p *lab.Pod, ips ...netip.Addr) {
	s.Helper()
	s.seesWhere(p.Node, fmt.Sprintf("%s in %s", p.Name, network), func(b lab.Binding) bool {
		return b.Netns == p.Name && b.Network == network && holds(b)
	}, ips)
}

// onlyOpen fails the scenario unless exactly this many conflicts are open at each node.
func (s *Stage) onlyOpen(want int) {
	s.Helper()
	for _, a := range s.Actors {
		open, err := a.Agent.Client.Conflicts(s.Context(), false)
		s.Do(err)
		if len(open) != want {
			s.Errorf("conflicts at %s: got %+v, want %d of them", a.Node.ShortName(), open, want)
		}
	}
}
