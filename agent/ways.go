package agent

import (
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/route"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxWays bounds the conflicts of one answer whose routes are asked for.
const maxWays = 64

// ways says whom the kernel's routes lead to. It is what the loop knew at one time, so that
// nobody else waits while the kernel is asked.
type ways struct {
	self string // NodeID
	host detector.HolderID
	// behind are the holders behind pod interfaces by ifindex, outward the veths that lead
	// out of the node.
	behind  map[int]detector.HolderID
	outward map[int]bool
	// networks are those that the node's own routes are about: of the pods' primary
	// interfaces, without tags.
	networks map[string]bool
	// nodes are the other nodes by the addresses of their agents.
	nodes map[netip.Addr]string
	// addresses are those of all agents by NodeID, of this node's, too.
	addresses map[string]netip.Addr
	to        func(netip.Addr) (route.Way, error)
	left      int // how many may still be asked for
}

// ways takes what there is to know of the node.
func (l *loop) ways() *ways {
	w := &ways{
		self: l.node.ID(), host: l.host, left: maxWays, to: new(route.Lookup).To,
		behind: make(map[int]detector.HolderID), outward: make(map[int]bool),
		networks: map[string]bool{config.DefaultNetwork: true}, nodes: make(map[netip.Addr]string),
		addresses: make(map[string]netip.Addr),
	}
	for _, i := range l.interfaces {
		w.behind[i.Index] = i.holder
		if i.View.Peer != "" && i.View.Peer != links.PrimaryPeer {
			continue
		}
		for network, vlan := range i.segments {
			if vlan == (bpf.VLAN{}) {
				w.networks[network] = true
			}
		}
	}
	for _, i := range l.unobserved {
		if i.State == links.Uplink {
			w.outward[i.Index] = true
		}
	}
	return w
}

// meet notes where the other nodes are.
func (w *ways) meet(members []cluster.Member) {
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

// lead says where this node sends packets to the address of a confirmed conflict now. It
// reports false where it cannot say, or was asked too much.
func (w *ways) lead(c detector.Conflict) (cluster.Lead, bool) {
	if c.State != detector.Confirmed || !w.networks[c.Key.Network] || w.left == 0 {
		return cluster.Lead{}, false
	}
	w.left--
	way, err := w.to(c.Key.IP)
	if err != nil {
		return cluster.Lead{}, false // a device went while we looked
	}
	lead := cluster.Lead{Key: c.Key, Device: way.Device.Name, Gateway: way.Gateway}
	switch way.Kind {
	case route.Nowhere:
		lead.Kind = cluster.LeadNowhere
	case route.Self:
		lead.Kind = cluster.LeadSelf
		w.toHolder(&lead, c, w.host)
	default:
		w.out(&lead, c, way)
	}
	return lead, true
}

// leads is lead for many.
func (w *ways) leads(conflicts []detector.Conflict) []cluster.Lead {
	var list []cluster.Lead
	for _, c := range conflicts {
		if lead, ok := w.lead(c); ok {
			list = append(list, lead)
		}
	}
	return list
}

// out follows a way by a device.
func (w *ways) out(lead *cluster.Lead, c detector.Conflict, way route.Way) {
	hop := c.Key.IP
	if way.Gateway.IsValid() {
		hop = way.Gateway
	}
	switch holder, pod := w.behind[way.Device.Index]; {
	case pod:
		lead.Kind = cluster.LeadDevice
		w.toHolder(lead, c, holder)
	case w.nodes[hop] != "":
		lead.Kind, lead.Node = cluster.LeadNode, w.nodes[hop]
	case way.MAC != nil:
		w.neighbour(lead, c, way)
	case way.Bridged && !way.Gateway.IsValid():
		lead.Kind = cluster.LeadUnknown
	default:
		lead.Kind = w.beyond(way.Device)
	}
}

// neighbour follows a way to whoever has a MAC: the holder behind the port that it is behind
// or, where no pod is, the only one with that MAC.
func (w *ways) neighbour(lead *cluster.Lead, c detector.Conflict, way route.Way) {
	if holder, pod := w.behind[way.Port.Index]; pod && way.Port.Index != 0 {
		lead.Kind = cluster.LeadDevice
		w.toHolder(lead, c, holder)
		return
	}
	// What leaves by a port of another kind does not come to a holder of this node.
	away := !way.Bridged || way.Port.Index != 0
	var found []detector.HolderID
	for _, b := range c.Holders {
		here := b.Holder.ID.Node == w.self
		if slices.Equal(b.Holder.MAC[:], way.MAC) && (!away || !here) {
			found = append(found, b.Holder.ID)
		}
	}
	switch {
	case len(found) == 1:
		lead.Kind, lead.Holder = cluster.LeadHolder, found[0]
	case len(found) > 1 && !away:
		lead.Kind = cluster.LeadUnknown // the bridge floods it to all of them
	case way.Port.Index != 0:
		lead.Kind, lead.Device = w.beyond(way.Port), way.Port.Name
	default:
		lead.Kind = w.beyond(way.Device)
	}
}

// toHolder makes a lead one to a holder of the conflict, if it is one.
func (w *ways) toHolder(lead *cluster.Lead, c detector.Conflict, id detector.HolderID) {
	if slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return b.Holder.ID == id }) {
		lead.Kind, lead.Holder = cluster.LeadHolder, id
	}
}

// beyond says what is behind a device that leads to no pod of this node.
func (w *ways) beyond(d route.Device) cluster.LeadKind {
	if d.Leaves || w.outward[d.Index] {
		return cluster.LeadAway
	}
	return cluster.LeadDevice
}
