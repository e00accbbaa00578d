package scenarios

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// lanConfig declares what is on the bridge br-lan of every node one network.
const lanConfig = `
networks:
  - name: lan
    scope: cluster
    match:
      bridges: [br-lan]
`

// The hosts of the network outside that eth2 of each node leads to.
var lanHosts = lab.IPs("10.52.0.254", "fd00:52::fe")

// lan gives each node, which is a container itself, an uplink that only its engine can know: eth2 leads to where eth1 leads, has no address, and
// is a port of br-lan. So is net1 of a pod on each node.
func (s *Stage) lan(onBridge bool) (pods []*lab.Pod) {
	s.Helper()
	wire, _ := s.secondUplinks("172.19.0.", "fd00:19::")
	s.outerNetwork(wire, "br-ba9876543210", netip.PrefixFrom(lanHosts[0], 24), netip.PrefixFrom(lanHosts[1], 64))
	for i, a := range s.Actors {
		var own []netip.Prefix
		if onBridge {
			own = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.52.0.%d/24", i+1)), netip.MustParsePrefix(fmt.Sprintf("fd00:52::%d/64", i+1))}
		}
		s.Do(a.Node.AddBridge("br-lan", own...))
		s.plugOutside(wire, "br-ba9876543210", a, "eth2")
		s.joins(a, "eth2", "br-lan")
		p := s.PodOn(a, fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: a.Addrs(lab.Bridged, 52)})
		s.Sees(p, p.Addrs()...)
		pods = append(pods, p)
	}
	return pods
}

// joins makes a device of a node a port of a bridge there.
func (s *Stage) joins(a *Actor, device, bridge string) {
	s.Helper()
	link, err := a.Node.Netlink().LinkByName(device)
	s.Do(err)
	master, err := a.Node.Netlink().LinkByName(bridge)
	s.Do(err)
	s.Do(a.Node.Netlink().LinkSetMaster(link, master))
}

// onLAN gives a pod net1 on br-lan.
func (s *Stage) onLAN(p *lab.Pod, ips ...netip.Addr) (port string) {
	s.Helper()
	port, err := p.AddInterface(lab.PodOptions{Interface: "net1", Bridge: "br-lan", Addrs: ips})
	s.Do(err)
	return port
}

var quietOutside = []Scenario{
	{ID: "Q52", Want: Quiet, Nodes: 2, Config: lanConfig, Text: "nodes that are containers, with an uplink without an address, on a bridge with pods", Play: func(s *Stage) {
		for i, p := range s.lan(true) {
			ips := lab.IPs(fmt.Sprintf("10.52.0.%d", i+11), fmt.Sprintf("fd00:52::1:%d", i+1))
			s.onLAN(p, ips...)
			for _, host := range lanHosts {
				s.Do(p.Ping(host), s.Actors[i].Node.Ping(host))
			}
			s.SeesIn("lan", p, ips...)
		}
		for _, a := range s.Actors {
			s.isUplink(a, "eth2")
		}
		s.assertQuietFor(time.Second)
	}},
	{ID: "Q52", Want: Quiet, Nodes: 2, Config: lanConfig, Text: "the same, the bridge has VLANs and no address", Play: func(s *Stage) {
		for i, p := range s.lan(false) {
			a := s.Actors[i]
			ips := lab.IPs(fmt.Sprintf("10.52.0.%d", i+11), fmt.Sprintf("fd00:52::1:%d", i+1))
			port, network := s.onLAN(p, ips...), "lan.52"
			nl := a.Node.Netlink()
			bridge, err := nl.LinkByName("br-lan")
			s.Do(err)
			if err := nl.BridgeSetVlanFiltering(bridge, true); err != nil {
				network = "lan" // this kernel has no VLANs on bridges
			} else {
				for _, name := range []string{port, "eth2"} {
					link, err := nl.LinkByName(name)
					s.Do(err, nl.BridgeVlanDel(link, 1, true, true, false, true), nl.BridgeVlanAdd(link, 52, true, true, false, true))
				}
			}
			for range 2 {
				for _, ip := range ips {
					frame, err := lab.Announcement(ip, macOf(p, "net1"), 0)
					s.Do(err, p.SendFrames("net1", frame))
				}
			}
			s.SeesIn(network, p, ips...)
		}
		for _, a := range s.Actors {
			s.isUplink(a, "eth2")
		}
		s.assertQuietFor(time.Second)
	}},
}

func macOf(n *lab.Pod, device string) []byte {
	link, err := n.Netlink().LinkByName(device)
	if err != nil {
		return nil
	}
	return link.Attrs().HardwareAddr
}

var foundOutside = []Scenario{
	{ID: "D43", Want: Found, Nodes: 2, Config: lanConfig, Text: "nodes that are containers: on a bridge with an uplink that has no address", Play: func(s *Stage) {
		ips := lab.IPs("10.52.0.43", "fd00:52::1:43")
		pods := s.lan(true)
		for _, a := range s.Actors {
			s.isUplink(a, "eth2")
		}
		s.onLAN(pods[0], ips...)
		s.SeesIn("lan", pods[0], ips...)
		since := time.Now()
		s.onLAN(pods[1], ips...)
		s.Finds(since, pods, ips...)
	}},
}
