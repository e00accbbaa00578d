package scenarios

import (
	"fmt"

	"github.com/dupip/dupip/tests/lab"
)

// quietOtherNetworks are addresses of other networks behind interfaces that a pod makes look like primary ones.
var quietOtherNetworks = []Scenario{
	{ID: "Q39", Want: Quiet, Nodes: 2, Text: "net1 on the bridge of the primary interfaces, with a subnet of its own on both nodes", Play: func(s *Stage) {
		ips := lab.IPs("10.10.0.5", "fd00:10::5")
		for i, a := range s.Actors {
			p := s.PodOn(a, fmt.Sprintf("multus%d", i), lab.PodOptions{Addrs: a.Addrs(lab.Bridged, 39)})
			_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "cni0", Addrs: ips})
			s.Do(err)
			s.SeesIn("net1@cni0", p, ips...)
		}
		p := s.Pod("pod", lab.PodOptions{Style: lab.Routed, Addrs: ips})
		s.Talk(p, ips...)
		s.Sees(p, ips...)
	}},
	{ID: "Q40", Want: Quiet, Text: "a pod moves net1, which is on another bridge, into a nested netns, and calls it eth0", Play: func(s *Stage) {
		ips := s.Addrs(lab.Bridged, 40)
		innocent := s.Pod("innocent", lab.PodOptions{Addrs: ips})
		s.Sees(innocent, ips...)
		s.Do(s.Node.AddBridge("br-net1"))
		p := s.Pod("multus", lab.PodOptions{Addrs: s.Addrs(lab.Bridged, 41)})
		_, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "br-net1", Addrs: lab.IPs("10.10.0.5")})
		s.Do(err)
		s.SeesIn("net1@br-net1", p, lab.IPs("10.10.0.5")...)
		nested := s.Pod("nested", lab.PodOptions{Style: lab.Raw, Interface: "spare"})
		s.Do(p.MoveInterface("net1", nested, "eth0", ips...))
		s.SeesIn("net1@br-net1", nested, ips...)
		s.Do(s.Agent().Stop())
		s.Restart(s.Actors[0])
		s.SeesIn("net1@br-net1", nested, ips...)
		s.Sees(innocent, ips...)
	}},
}
