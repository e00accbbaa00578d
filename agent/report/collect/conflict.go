package collect

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/advice"
	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxHops limits the next hops to one address that are shown.
const maxHops = 16

// advise adds routes and advice to the document of a confirmed conflict, unless it is a drill.
func (c *Collection) advise(document *api.Conflict, conflict detector.Conflict) {
	if conflict.State != detector.Confirmed || conflict.IsDrill() || c.advised == MaxRouted {
		return
	}
	c.advised++
	hops := c.nextHops(conflict)
	var ids []string
	for _, b := range conflict.Holders {
		ids = append(ids, b.Holder.ID.Node)
	}
	for _, h := range hops {
		ids = append(ids, h.Node, h.NextHop.Node)
	}
	names := merge.Names(ids)
	for _, h := range hops {
		document.Routes = append(document.Routes, newRoute(conflict, h, names))
	}
	if document.Advice = advice.Of(conflict, hops, names, c.awayFrom(conflict)); document.Advice == nil {
		return
	}
	for n := range document.Advice.Remove {
		r := &document.Advice.Remove[n]
		at, known := c.addresses[conflict.Holders[r.Holder].Holder.ID.Node]
		if known && r.On != "" {
			r.Address = at.String()
		}
	}
}

// awayFrom returns when nodes were cut off: as Self saw it, which may have started later, and as the nodes with holders did. Each
// may know of another time.
func (c *Collection) awayFrom(conflict detector.Conflict) map[string][]advice.Away {
	all, nodes := make(map[string][]advice.Away), map[string]bool{c.Self.NodeID(): true}
	for _, b := range conflict.Holders {
		nodes[b.Holder.ID.Node] = true
	}
	for by := range nodes {
		for _, a := range c.away[by] {
			if nodes[a.Node] {
				all[a.Node] = append(all[a.Node], advice.Away{From: a.From, Until: a.Until})
			}
		}
	}
	return all
}

// nextHops returns the next hops of the asking node, if it is one, and of the holders' nodes.
func (c *Collection) nextHops(conflict detector.Conflict) []advice.NextHop {
	var hops []advice.NextHop
	if c.NextHop != nil {
		if hop, ok := c.NextHop(conflict); ok {
			hops = append(hops, advice.NextHop{Node: c.Self.NodeID(), NextHop: hop})
		}
	}
	others := slices.SortedStableFunc(slices.Values(c.hops[conflict.Key]), func(x, y advice.NextHop) int {
		return cmp.Compare(x.Node, y.Node)
	})
	for _, other := range others {
		holds := slices.ContainsFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID.Node == other.Node })
		known := slices.ContainsFunc(hops, func(h advice.NextHop) bool { return h.Node == other.Node })
		if holds && !known && len(hops) < maxHops {
			hops = append(hops, other)
		}
	}
	return hops
}

// newRoute makes the document of a next hop. If it leads to a holder that is not in the conflict,
// only the device is known.
func newRoute(conflict detector.Conflict, h advice.NextHop, names map[string]string) api.Route {
	r := api.Route{Node: names[h.Node], To: h.Kind.String(), ToNode: names[h.NextHop.Node], Device: h.Device}
	if h.Gateway.IsValid() {
		r.Gateway = h.Gateway.String()
	}
	if h.Kind == cluster.NextHopHolder {
		n := slices.IndexFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID == h.Holder })
		if n < 0 {
			r.To = cluster.NextHopDevice.String()
		} else {
			r.Holder = &n
		}
	}
	return r
}
