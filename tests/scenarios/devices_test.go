package scenarios

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/tests/lab"
)

// foundWithDevices are duplicates on devices that some kernels do not have.
var foundWithDevices = slices.Concat(
	[]Scenario{
		uplinkOf(lab.VLAN, Scenario{ID: "D9", Want: Found, Nodes: 3, Text: "a pod has an address of another node, or of its tunnel", Play: addressOfOtherNode}),
		uplinkOf(lab.Bond, Scenario{ID: "D9", Want: Found, Nodes: 3, Text: "a pod has an address of another node, or of its tunnel", Play: addressOfOtherNode}),
		with(lab.Dummy, Scenario{ID: "D22", Want: Found, Nodes: 2, Text: "undeclared anycast, with a hint", Play: func(s *Stage) { s.anycast("anycast0") }}),
	},
	onOneAndMore(2, with(lab.VLAN, Scenario{ID: "D14", Want: Found, Text: "inside one VLAN, by devices of the pods", Play: func(s *Stage) {
		own := byte(40)
		s.inOneVLAN(s.Addrs(lab.Bridged, 14), func(a *Actor, name string, vlan uint16, ips []netip.Addr) *lab.Pod {
			if vlan == 0 {
				p := s.PodOn(a, name, lab.PodOptions{Addrs: ips})
				s.Talk(p, ips...)
				return p
			}
			own++
			p := s.PodOn(a, name, lab.PodOptions{Addrs: a.Addrs(lab.Bridged, own)})
			device, err := p.AddVLAN(int(vlan), ips...)
			s.Do(err)
			for _, ip := range ips {
				s.Do(p.SendFrom(device, ip, ip.Next()))
			}
			return p
		})
	}})),
	onOneAndMore(2, with(lab.VRF, Scenario{ID: "D17", Want: Found, Text: "in one VRF; another one has the same addresses", Config: tenants, Play: func(s *Stage) {
		ips := s.Addrs(lab.Routed, 17)
		s.addTenants()
		older := s.tenant(s.Actors[0], "older", "vrf-a", ips)
		s.SeesIn("tenant-a", older, ips...)
		s.SeesIn("tenant-b", s.tenant(s.last(), "other-vrf", "vrf-b", ips), ips...)
		s.SeesIn("default", s.tenant(s.last(), "no-vrf", "", ips), ips...)
		newcomer := s.tenant(s.last(), "newcomer", "vrf-a", ips)
		for _, e := range s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...) {
			if e.Conflict.Network != "tenant-a" {
				s.Errorf("network of the conflict: got %s, want tenant-a", e.Conflict.Network)
			}
		}
		s.onlyOpen(len(ips))
	}})),
	onOneAndMore(2, with(lab.OVS, Scenario{ID: "D38", Want: Found, Text: "pods are ports of Open vSwitch", Play: func(s *Stage) {
		s.addOVS()
		ips := s.Addrs(lab.Bridged, 38)
		pods := make([]*lab.Pod, 2)
		for i, a := range []*Actor{s.Actors[0], s.last()} {
			pods[i] = s.PodOn(a, fmt.Sprint("pod", i), lab.PodOptions{Bridge: ovsBridge, Addrs: ips})
			s.Sees(pods[i], ips...)
		}
		s.Finds(pods[1].Started, pods, ips...)
	}})),
)

const ovsBridge = "br-int"

// addOVS gives each node a bridge of Open vSwitch.
func (s *Stage) addOVS() {
	s.Helper()
	for _, a := range s.Actors {
		s.Do(a.Node.AddOVSBridge(ovsBridge))
	}
}

// quietWithDevices are lawful, on devices that some kernels do not have.
var quietWithDevices = []Scenario{
	uplinkOf(lab.VLAN, Scenario{ID: "Q4", Want: Quiet, Nodes: 2, Text: "the host's own traffic on every interface", Play: hostTraffic}),
	uplinkOf(lab.Bond, Scenario{ID: "Q4", Want: Quiet, Nodes: 2, Text: "the host's own traffic on every interface", Play: hostTraffic}),
	// As with bridges, a pod is faster than its agent notices the VRF.
	with(lab.VRF, Scenario{ID: "Q8", Want: Quiet, MaySuspect: true, Text: "one address in two VRFs, and in none", Config: tenants, Play: func(s *Stage) {
		ips := s.Addrs(lab.Routed, 8)
		s.addTenants()
		for _, vrf := range []string{"vrf-a", "vrf-b", ""} {
			network := map[string]string{"vrf-a": "tenant-a", "vrf-b": "tenant-b", "": "default"}[vrf]
			s.SeesIn(network, s.tenant(s.Actors[0], "in-"+network, vrf, ips), ips...)
		}
	}}),
	with(lab.OVS, Scenario{ID: "Q49", Want: Quiet, Nodes: 2, Text: "net1 of three pods on Open vSwitch, whose networks have one subnet", Play: func(s *Stage) {
		s.addOVS()
		same := lab.IPs("10.49.0.2", "fd49::2")
		for i, a := range []*Actor{s.Actors[0], s.Actors[0], s.Actors[1]} {
			own := a.Addrs(lab.Bridged, byte(50+i))
			p := s.PodOn(a, fmt.Sprint("pod", i), lab.PodOptions{Addrs: own})
			s.Sees(p, own...)
			_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: ovsBridge, Addrs: same})
			s.Do(err)
			s.Sees(p, same...)
		}
	}}),
}

// uplinkOf is a form of a scenario in which the nodes' uplinks are such devices.
func uplinkOf(kind string, sc Scenario) Scenario {
	sc.UplinkKind = kind
	sc.Text += "; the uplinks are " + kind + " devices"
	play := sc.Play
	sc.Play = func(s *Stage) {
		play(s)
		for _, a := range s.Actors {
			s.isUplink(a, lab.UplinkName)
		}
	}
	return with(kind, sc)
}

// isUplink waits until an agent has found that an interface leads out of the node. It looks like a pod's, and has no address.
func (s *Stage) isUplink(a *Actor, name string) {
	s.Helper()
	s.waitInterface(a, name, func(i lab.Interface) bool { return i.State == "uplink" })
}

// tenants are two networks, each a VRF of every node.
const tenants = `
networks:
  - name: tenant-a
    match: {bridges: [vrf-a]}
  - name: tenant-b
    match: {bridges: [vrf-b]}
`

// addTenants makes the VRFs.
func (s *Stage) addTenants() {
	s.Helper()
	for _, a := range s.Actors {
		for i, vrf := range []string{"vrf-a", "vrf-b"} {
			s.Do(a.Node.AddVRF(vrf, uint32(101+i)))
		}
	}
}

// tenant is a routed pod in a VRF, or with "" in none, that has sent.
func (s *Stage) tenant(a *Actor, name, vrf string, ips []netip.Addr) *lab.Pod {
	s.Helper()
	p := s.PodOn(a, name, lab.PodOptions{Style: lab.Routed, VRF: vrf, Addrs: ips})
	s.Talk(p, ips...)
	return p
}
