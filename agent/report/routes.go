package report

import (
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// routes says where the kernel sends packets to an address. It is a snapshot of what the agent
// knows, so that the agent does not wait for the kernel.
type routes struct {
	self string // NodeID
	host detector.HolderID
	// holders are behind pod interfaces, uplinks are the veths that lead out of the node, by
	// ifindex.
	holders map[int]detector.HolderID
	uplinks map[int]bool
	// networks are those that the node's own routes apply to: the untagged ones of the pods'
	// primary interfaces.
	networks map[string]bool
	// nodes are the other nodes by the addresses of their agents.
	nodes     map[netip.Addr]string
	lookup    func(netip.Addr) (route.Route, error)
	remaining int // lookups
}

// newRoutes must be called in the goroutine that owns the parts.
func (r *Report) newRoutes() *routes {
	s := &routes{
		self: r.Self.NodeID(), host: r.Table.Host, remaining: collect.MaxRouted, lookup: r.lookup(),
		holders: make(map[int]detector.HolderID), uplinks: make(map[int]bool),
		networks: map[string]bool{config.DefaultNetwork: true}, nodes: make(map[netip.Addr]string),
	}
	for i := range r.Table.All() {
		s.holders[i.Index] = i.Holder
		if i.Primary() {
			for _, network := range i.Untagged() {
				s.networks[network] = true
			}
		}
	}
	for _, i := range r.Table.Unobserved() {
		if i.State == links.Uplink {
			s.uplinks[i.Index] = true
		}
	}
	return s
}

func (s *routes) addMembers(members []cluster.Member) {
	for _, m := range members {
		if at, err := netip.ParseAddrPort(m.Address); err == nil && m.Live() && m.NodeID() != s.self {
			s.nodes[at.Addr().Unmap()] = m.NodeID()
		}
	}
}

// nextHop returns where this node sends packets to the address of a confirmed conflict now. It
// reports false if that is unknown, or after too many lookups.
func (s *routes) nextHop(c detector.Conflict) (cluster.NextHop, bool) {
	if c.State != detector.Confirmed || !s.networks[c.Key.Network] || s.remaining == 0 {
		return cluster.NextHop{}, false
	}
	s.remaining--
	r, err := s.lookup(c.Key.IP)
	if err != nil {
		return cluster.NextHop{}, false // a device was removed during the lookup
	}
	hop := cluster.NextHop{Key: c.Key, Device: r.Device.Name, Gateway: r.Gateway}
	switch r.Kind {
	case route.Nowhere:
		hop.Kind = cluster.NextHopNone
	case route.Self:
		hop.Kind = cluster.NextHopSelf
		setHolder(&hop, c, s.host)
	default:
		s.resolve(&hop, c, r)
	}
	return hop, true
}

// resolve finds what is behind the device of a route.
func (s *routes) resolve(hop *cluster.NextHop, c detector.Conflict, r route.Route) {
	ip := c.Key.IP
	if r.Gateway.IsValid() {
		ip = r.Gateway
	}
	switch holder, pod := s.holders[r.Device.Index]; {
	case pod:
		hop.Kind = cluster.NextHopDevice
		setHolder(hop, c, holder)
	case s.nodes[ip] != "":
		hop.Kind, hop.Node = cluster.NextHopNode, s.nodes[ip]
	case r.MAC != nil:
		s.resolveMAC(hop, c, r)
	case r.Bridged && !r.Gateway.IsValid():
		hop.Kind = cluster.NextHopUnknown
	default:
		hop.Kind = s.kindOf(r.Device)
	}
}

// resolveMAC finds the holder behind the bridge port of a MAC or, if that is no pod's, the only
// holder with the MAC.
func (s *routes) resolveMAC(hop *cluster.NextHop, c detector.Conflict, r route.Route) {
	if holder, pod := s.holders[r.Port.Index]; pod && r.Port.Index != 0 {
		hop.Kind = cluster.NextHopDevice
		setHolder(hop, c, holder)
		return
	}
	// Any other port, or none, leads to no holder of this node.
	away := !r.Bridged || r.Port.Index != 0
	var found []detector.HolderID
	for _, b := range c.Holders {
		if slices.Equal(b.Holder.MAC[:], r.MAC) && (!away || b.Holder.ID.Node != s.self) {
			found = append(found, b.Holder.ID)
		}
	}
	switch {
	case len(found) == 1:
		hop.Kind, hop.Holder = cluster.NextHopHolder, found[0]
	case len(found) > 1 && !away:
		hop.Kind = cluster.NextHopUnknown // the bridge floods it to all of them
	case r.Port.Index != 0:
		hop.Kind, hop.Device = s.kindOf(r.Port), r.Port.Name
	default:
		hop.Kind = s.kindOf(r.Device)
	}
}

// setHolder sets the holder of a next hop, if it is in the conflict.
func setHolder(hop *cluster.NextHop, c detector.Conflict, id detector.HolderID) {
	if slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return b.Holder.ID == id }) {
		hop.Kind, hop.Holder = cluster.NextHopHolder, id
	}
}

// kindOf returns what is behind a device that leads to no pod of this node.
func (s *routes) kindOf(d route.Device) cluster.NextHopKind {
	if d.Leaves || s.uplinks[d.Index] {
		return cluster.NextHopAway
	}
	return cluster.NextHopDevice
}
