package scenarios

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// vips are virtual addresses of nodes, of the nodes' segment and of another network.
var vips = lab.IPs("192.168.77.200", "203.0.113.7", "fd00:77::200")

// foundNodes are addresses that two nodes have for themselves.
var foundNodes = []Scenario{
	{ID: "D44", Want: Found, Nodes: 3, Text: "a virtual address is on two nodes", Play: func(s *Stage) {
		first, second := s.Actors[0].Node, s.Actors[1].Node
		for _, ip := range vips {
			s.Do(first.AddAddr(lab.UplinkName, single(ip)))
			s.SeesNode(s.Actors[0], ip)
		}
		since := time.Now()
		for _, ip := range vips {
			s.Do(second.AddAddr(lab.UplinkName, single(ip)))
		}
		s.FindsNodes(since, []*lab.Node{first, second}, vips...)
	}},
}

// single is the prefix of one address.
func single(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, ip.BitLen()) }

// SeesNode waits until an agent lists an address of its node.
func (s *Stage) SeesNode(a *Actor, ip netip.Addr) {
	s.Helper()
	_, err := a.Agent.Client.WaitBinding(s.Context(), ip, func(b lab.Binding) bool { return b.Netns == "host" && b.Evidence == "host" })
	s.Do(err)
}

// FindsNodes is Finds for nodes that have addresses for themselves.
func (s *Stage) FindsNodes(since time.Time, nodes []*lab.Node, ips ...netip.Addr) []lab.Event {
	s.Helper()
	f := finding{from: since, since: since, scope: "node-node"}
	for _, n := range nodes {
		f.add(n, "host")
	}
	return s.finds(f, ips)
}
