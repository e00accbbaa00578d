package report

import (
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxRouted bounds the conflicts of one answer whose routes are looked up.
const maxRoutedConflicts = 64

// routes says where the kernel sends packets to an address. It is a copy of what the agent knew
// at one time, so that nothing waits while the kernel is asked.
type routes struct {
	self string // NodeID
	host detector.HolderID
	// behind are the holders behind pod interfaces, uplinks the veths that lead out of the
	// node, by ifindex.
	holders map[int]detector.HolderID
	uplinks map[int]bool
	// networks are those that the node's own routes are about: of the pods' primary
	// interfaces, without tags.
	networks map[string]bool
	// nodes are the other nodes by the addresses of their agents.
	nodes map[netip.Addr]string
	// addresses are those of all agents by NodeID, of this node's, too.
	addresses map[string]netip.Addr
	lookup    func(netip.Addr) (route.Route, error)
	remaining int // how many may still be looked up
}

// newRoutes copies what there is to know of the node.
func (r *Report) newRoutes() *routes {
	w := &routes{
		self: r.Self.NodeID(), host: r.Table.Host, remaining: maxRoutedConflicts, lookup: r.lookup(),
		holders: make(map[int]detector.HolderID), uplinks: make(map[int]bool),
		networks: map[string]bool{config.DefaultNetwork: true}, nodes: make(map[netip.Addr]string),
		addresses: make(map[string]netip.Addr),
	}
	for i := range r.Table.All() {
		w.holders[i.Index] = i.Holder
		if i.Primary() {
			for _, network := range i.Untagged() {
				w.networks[network] = true
			}
		}
	}
	for _, i := range r.Table.Unobserved() {
		if i.State == links.Uplink {
			w.uplinks[i.Index] = true
		}
	}
	return w
}

// addMembers takes the addresses of the nodes.
func (w *routes) addMembers(members []cluster.Member) {
	for _, m := range members {
		at, err := netip.ParseAddrPort(m.Address)
		if err != nil || m.State != cluster.Alive && m.State != cluster.Suspect {
			continue
		}
		w.addresses[m.NodeID()] = at.Addr().Unmap()
		if m.NodeID() != w.self {
			w.nodes[at.Addr().Unmap()] = m.NodeID()
		}
	}
}

// nextHop says where this node sends packets to the address of a confirmed conflict now. It
// reports false where it cannot say, or was asked too much.
func (w *routes) nextHop(c detector.Conflict) (cluster.NextHop, bool) {
	if c.State != detector.Confirmed || !w.networks[c.Key.Network] || w.remaining == 0 {
		return cluster.NextHop{}, false
	}
	w.remaining--
	rt, err := w.lookup(c.Key.IP)
	if err != nil {
		return cluster.NextHop{}, false // a device went while we looked
	}
	hop := cluster.NextHop{Key: c.Key, Device: rt.Device.Name, Gateway: rt.Gateway}
	switch rt.Kind {
	case route.Nowhere:
		hop.Kind = cluster.NextHopNone
	case route.Self:
		hop.Kind = cluster.NextHopSelf
		w.setHolder(&hop, c, w.host)
	default:
		w.resolve(&hop, c, rt)
	}
	return hop, true
}

// nextHops is nextHop for many.
func (w *routes) nextHops(conflicts []detector.Conflict) []cluster.NextHop {
	var list []cluster.NextHop
	for _, c := range conflicts {
		if hop, ok := w.nextHop(c); ok {
			list = append(list, hop)
		}
	}
	return list
}

// out follows a route by a device.
func (w *routes) resolve(hop *cluster.NextHop, c detector.Conflict, rt route.Route) {
	ip := c.Key.IP
	if rt.Gateway.IsValid() {
		ip = rt.Gateway
	}
	switch holder, pod := w.holders[rt.Device.Index]; {
	case pod:
		hop.Kind = cluster.NextHopDevice
		w.setHolder(hop, c, holder)
	case w.nodes[ip] != "":
		hop.Kind, hop.Node = cluster.NextHopNode, w.nodes[ip]
	case rt.MAC != nil:
		w.neighbour(hop, c, rt)
	case rt.Bridged && !rt.Gateway.IsValid():
		hop.Kind = cluster.NextHopUnknown
	default:
		hop.Kind = w.kindOf(rt.Device)
	}
}

// neighbour follows a route to a MAC: the holder behind the port that it is behind
// or, where no pod is, the only one with that MAC.
func (w *routes) neighbour(hop *cluster.NextHop, c detector.Conflict, rt route.Route) {
	if holder, pod := w.holders[rt.Port.Index]; pod && rt.Port.Index != 0 {
		hop.Kind = cluster.NextHopDevice
		w.setHolder(hop, c, holder)
		return
	}
	// What leaves by a port of another kind does not come to a holder of this node.
	away := !rt.Bridged || rt.Port.Index != 0
	var found []detector.HolderID
	for _, b := range c.Holders {
		here := b.Holder.ID.Node == w.self
		if slices.Equal(b.Holder.MAC[:], rt.MAC) && (!away || !here) {
			found = append(found, b.Holder.ID)
		}
	}
	switch {
	case len(found) == 1:
		hop.Kind, hop.Holder = cluster.NextHopHolder, found[0]
	case len(found) > 1 && !away:
		hop.Kind = cluster.NextHopUnknown // the bridge floods it to all of them
	case rt.Port.Index != 0:
		hop.Kind, hop.Device = w.kindOf(rt.Port), rt.Port.Name
	default:
		hop.Kind = w.kindOf(rt.Device)
	}
}

// toHolder makes it a next hop to a holder of the conflict, if it is one.
func (w *routes) setHolder(hop *cluster.NextHop, c detector.Conflict, id detector.HolderID) {
	if slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return b.Holder.ID == id }) {
		hop.Kind, hop.Holder = cluster.NextHopHolder, id
	}
}

// beyond says what is behind a device that leads to no pod of this node.
func (w *routes) kindOf(d route.Device) cluster.NextHopKind {
	if d.Leaves || w.uplinks[d.Index] {
		return cluster.NextHopAway
	}
	return cluster.NextHopDevice
}
