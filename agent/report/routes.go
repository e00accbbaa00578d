package report

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
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
	lookup    func(netip.Addr) ([]route.Route, error)
	remaining int // lookups of [routes.of]
	// For [routes.legs]: what [route.Ports] returns, and whether the node has rules that look at more than the destination.
	ports  func() (map[int][]int, error)
	policy func() bool
}

// newRoutes must be called in the goroutine that owns the parts.
func (r *Report) newRoutes() *routes {
	s := &routes{
		self: r.Self.NodeID(), host: r.Table.Host, remaining: collect.MaxRouted, lookup: r.lookup,
		ports: sync.OnceValues(route.Ports), policy: sync.OnceValue(func() bool {
			simple, err := route.ByDestination()
			return err != nil || !simple
		}),
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
			ip := at.Addr().Unmap()
			if other, twice := s.nodes[ip]; twice && other != m.NodeID() {
				s.nodes[ip] = "" // it may be a gateway, with both behind it
			} else {
				s.nodes[ip] = m.NodeID()
			}
		}
	}
}

// of returns where this node sends packets to the address of a confirmed conflict now. It
// reports false if that is unknown, or after too many lookups.
func (s *routes) of(c document.Conflict) (document.Route, bool) {
	if c.State != detector.Confirmed || !s.networks[c.Network] || s.remaining == 0 {
		return document.Route{}, false
	}
	s.remaining--
	found, err := s.lookup(c.IP)
	if err != nil || len(found) == 0 {
		return document.Route{}, false // a device was removed during the lookup
	}
	return s.describe(c, found[0]), true
}

// legs returns all routes of this node to an address, none if they are unknown. They do not say which holder of a conflict they lead to.
func (s *routes) legs(ip netip.Addr) (list []document.Route) {
	found, err := s.lookup(ip)
	if err != nil {
		return nil
	}
	for _, leg := range found {
		r := s.describe(document.Conflict{IP: ip}, leg)
		r.Policy, r.Ends = s.policy(), (r.To == document.ToDevice || r.To == document.ToUnknown) && s.ends(leg)
		list = append(list, r)
	}
	return list
}

// ends reports whether a route leads to pods of this node only: to one, if the route is for that address alone, or into a bridge that has no
// other ports.
func (s *routes) ends(found route.Route) bool {
	switch _, pod := s.holders[found.Device.Index]; {
	case found.Gateway.IsValid(): // also a pod may be a router
		return false
	case pod:
		return found.Single
	case found.Bridge == 0:
		return false
	}
	ports, err := s.ports()
	return err == nil && len(ports[found.Bridge]) > 0 && !slices.ContainsFunc(ports[found.Bridge], func(index int) bool {
		_, pod := s.holders[index]
		return !pod
	})
}

// describe says where a route leads.
func (s *routes) describe(c document.Conflict, found route.Route) document.Route {
	r := document.Route{Node: cluster.NodeName(s.self), BootID: cluster.BootID(s.self), Device: found.Device.Name, Gateway: found.Gateway}
	switch found.Kind {
	case route.Nowhere:
		r.To = document.ToNowhere
	case route.Self:
		r.To = document.ToSelf
		setHolder(&r, c, s.host)
	default:
		s.resolve(&r, c, found)
	}
	return r
}

// resolve finds what is behind the device of a route.
func (s *routes) resolve(r *document.Route, c document.Conflict, found route.Route) {
	ip := c.IP
	if found.Gateway.IsValid() {
		ip = found.Gateway
	}
	switch holder, pod := s.holders[found.Device.Index]; {
	case pod:
		r.To = document.ToDevice
		setHolder(r, c, holder)
	case s.nodes[ip] != "" || s.nodes[found.Far] != "":
		id := cmp.Or(s.nodes[ip], s.nodes[found.Far])
		r.To, r.ToNode, r.ToBootID = document.ToNode, cluster.NodeName(id), cluster.BootID(id)
	case found.MAC != nil:
		s.resolveMAC(r, c, found)
	case found.Bridge != 0 && !found.Gateway.IsValid():
		r.To = document.ToUnknown
	default:
		r.To = s.kindOf(found.Device)
	}
}

// resolveMAC finds the holder behind the bridge port of a MAC or, if that is no pod's, the only
// holder with the MAC.
func (s *routes) resolveMAC(r *document.Route, c document.Conflict, found route.Route) {
	if holder, pod := s.holders[found.Port.Index]; pod && found.Port.Index != 0 {
		r.To = document.ToDevice
		setHolder(r, c, holder)
		return
	}
	// Any other port, or none, leads to no holder of this node.
	away := found.Bridge == 0 || found.Port.Index != 0
	var with []int
	for n, b := range c.Holders {
		if slices.Equal(b.MAC[:], found.MAC) && (!away || b.NodeID() != s.self) {
			with = append(with, n)
		}
	}
	switch {
	case len(with) == 1:
		r.To, r.Holder = document.ToHolder, &with[0]
	case len(with) > 1 && !away:
		r.To = document.ToUnknown // the bridge floods it to all of them
	case found.Port.Index != 0:
		r.To, r.Device = s.kindOf(found.Port), found.Port.Name
	default:
		r.To = s.kindOf(found.Device)
	}
}

// setHolder sets the holder of a route, if it is in the conflict.
func setHolder(r *document.Route, c document.Conflict, id detector.HolderID) {
	if n := slices.IndexFunc(c.Holders, func(b document.Binding) bool { return b.ID() == id }); n >= 0 {
		r.To, r.Holder = document.ToHolder, &n
	}
}

// kindOf returns what is behind a device that leads to no pod of this node.
func (s *routes) kindOf(d route.Device) string {
	if d.Leaves || s.uplinks[d.Index] {
		return document.ToAway
	}
	return document.ToDevice
}
