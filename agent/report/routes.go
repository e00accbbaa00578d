package report

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/paths"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

// maxRoutes bounds the routes to nodes that are compared with others, and those others.
const maxRoutes = 1 << 16

var tooManyRoutes = bounds.New("too many routes to compare with each other")

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
	tables    func(func(route.Entry)) (whole bool, err error)
	remaining int // lookups of [routes.of]
	// For [routes.legs]: what [route.Ports] returns, and whether the node has rules that look at more than the destination.
	ports  func() (map[int][]int, error)
	policy func() bool
	// own are the holders on this node by their addresses, as far as [Report.holding] has noted them.
	own     map[netip.Addr]detector.HolderID
	proxies func() *route.Proxies
}

// newRoutes must be called in the goroutine that owns the parts.
func (r *Report) newRoutes() *routes {
	s := &routes{
		self: r.Self.NodeID(), host: r.Table.Host, remaining: collect.MaxRouted, lookup: r.lookup, tables: route.Tables,
		ports: sync.OnceValues(route.Ports), policy: sync.OnceValue(func() bool {
			simple, err := route.ByDestination()
			return err != nil || !simple
		}),
		holders: make(map[int]detector.HolderID), uplinks: make(map[int]bool),
		networks: map[string]bool{config.DefaultNetwork: true}, own: make(map[netip.Addr]detector.HolderID),
	}
	s.proxies = sync.OnceValue(func() *route.Proxies {
		found, err := route.ListProxies()
		if err != nil {
			return &route.Proxies{} // devices have changed meanwhile: in the next look
		}
		return found
	})
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

func (s *routes) addMembers(members []cluster.Member) { s.nodes = byAddress(members, s.self) }

// byAddress returns the live nodes but this one by the address at which they receive gossip, none for the address of several: it may be a
// gateway, with all of them behind it.
func byAddress(members []cluster.Member, self string) map[netip.Addr]string {
	nodes := make(map[netip.Addr]string)
	for _, m := range members {
		if at, err := netip.ParseAddrPort(m.Address); err == nil && m.Live() && m.NodeID() != self {
			ip := at.Addr().Unmap()
			if other, twice := nodes[ip]; twice && other != m.NodeID() {
				nodes[ip] = ""
			} else {
				nodes[ip] = m.NodeID()
			}
		}
	}
	return nodes
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

// holding notes which addresses of the default network holders on this node have, all or this one, and returns those of pods. Call it in the
// goroutine that owns the parts.
func (r *Report) holding(s *routes, only netip.Addr) (pods []detector.Binding) {
	for _, b := range r.Detector.Bindings(func(b *detector.Binding) bool {
		return b.Key.Network == config.DefaultNetwork && (!only.IsValid() || b.Key.IP == only) && r.isOwn(b) && b.Evidence > detector.Forwarded
	}) {
		s.own[b.Key.IP] = b.Holder.ID
		pods = append(pods, b)
	}
	return pods
}

// legs returns all routes of this node to an address, none if they are unknown. They do not say which holder of a conflict they lead to.
func (s *routes) legs(ip netip.Addr) (list []document.Route) {
	found, err := s.lookup(ip)
	if err != nil {
		return nil
	}
	holder, own := s.own[ip]
	proxy, by := "", ""
	if !own && slices.ContainsFunc(found, func(leg route.Route) bool { return leg.Kind == route.Out }) {
		proxy, by = s.proxies().For(ip, found, s.podsOnly)
	}
	for _, leg := range found {
		r := s.describe(document.Conflict{IP: ip}, leg)
		r.Policy, r.Ends = s.policy(), (r.To == document.ToDevice || r.To == document.ToUnknown) && s.ends(leg, holder)
		r.Prefix, r.Table, r.Protocol = leg.Prefix, leg.Table, leg.Protocol
		if proxy != leg.Device.Name {
			r.Proxy, r.ProxyBy = proxy, by
		}
		list = append(list, r)
	}
	return list
}

// ends reports whether a route leads to pods of this node only, and not to this holder: to one, if the route is for that address alone, or
// into a bridge that has no other ports.
func (s *routes) ends(found route.Route, holder detector.HolderID) bool {
	switch other, pod := s.holders[found.Device.Index]; {
	case found.Gateway.IsValid(): // also a pod may be a router
		return false
	case pod:
		return found.Single && other != holder
	case found.Bridge == 0 || !s.podsOnly(found.Bridge):
		return false
	}
	ports, err := s.ports()
	return err == nil && !slices.ContainsFunc(ports[found.Bridge], func(index int) bool { return s.holders[index] == holder })
}

// podsOnly reports whether a device leads to pods only: to one, or it is a bridge of pods.
func (s *routes) podsOnly(bridge int) bool {
	if _, pod := s.holders[bridge]; pod {
		return true
	}
	ports, err := s.ports()
	return err == nil && len(ports[bridge]) > 0 && !slices.ContainsFunc(ports[bridge], func(index int) bool {
		_, pod := s.holders[index]
		return !pod
	})
}

// shadows returns what routes of this node take from a range that another one sends to a node, and whether these are all. What leads to a
// node takes nothing, and which route the kernel prefers a lookup says.
func (s *routes) shadows() (list []paths.Range, whole bool) {
	ranges, vxlan := make(map[netip.Prefix]route.Entry), make(map[int]bool)
	var parts []route.Entry
	whole, err := s.tables(func(e route.Entry) {
		holder, pod := s.holders[e.Index]
		switch {
		case e.Gateway.IsValid():
			if _, known := vxlan[e.Index]; !known {
				vxlan[e.Index] = route.IsVXLAN(e.Index)
			}
			if e.Prefix.Bits() == 0 || s.nodes[e.Gateway] == "" && !vxlan[e.Index] {
				return
			}
			if len(ranges) < maxRoutes {
				ranges[e.Prefix] = e
			} else {
				tooManyRoutes.Exceeded(1)
			}
		case !e.Prefix.Addr().IsGlobalUnicast():
		case !e.Local && pod && (!e.Prefix.IsSingleIP() || s.own[e.Prefix.Addr()] == holder):
		case len(parts) < maxRoutes:
			parts = append(parts, e)
		default:
			tooManyRoutes.Exceeded(1)
		}
	})
	if err != nil {
		return nil, false
	}
	seen, nodes := make(map[paths.Range]bool), make(map[netip.Prefix]string)
	for _, part := range parts {
		r := paths.Range{Node: s.around(part.Prefix, ranges, nodes), Prefix: part.Prefix}
		switch {
		case r.Node == "" || seen[r] || !part.Local && !s.podsOnly(part.Index):
		case len(list) == paths.MaxRanges:
			tooManyRoutes.Exceeded(1)
		default:
			seen[r] = true
			list = append(list, r)
		}
	}
	return list, whole
}

// around returns the node, by NodeID, that the narrowest of these ranges around a prefix leads to; empty for none. nodes keeps those of ranges.
func (s *routes) around(part netip.Prefix, ranges map[netip.Prefix]route.Entry, nodes map[netip.Prefix]string) string {
	for bits := part.Bits(); bits > 0 && len(ranges) > 0; bits-- {
		outer, _ := part.Addr().Prefix(bits)
		e, ok := ranges[outer]
		if !ok {
			continue
		}
		node, known := nodes[outer]
		if !known {
			leg, err := e.Leg()
			if r := s.describe(document.Conflict{IP: outer.Addr()}, leg); err == nil && r.To == document.ToNode {
				node = r.ToNodeID()
			}
			nodes[outer] = node
		}
		return node
	}
	return ""
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
