package report

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
func (c *collection) advise(document *api.Conflict, conflict detector.Conflict) {
	if conflict.State != detector.Confirmed || conflict.IsDrill() || c.advised == maxRoutedConflicts {
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
	if document.Advice = advice.Of(conflict, hops, names, c.routes.away); document.Advice == nil {
		return
	}
	for n := range document.Advice.Remove {
		r := &document.Advice.Remove[n]
		at, known := c.routes.addresses[conflict.Holders[r.Holder].Holder.ID.Node]
		if known && r.On != "" {
			r.Address = at.String()
		}
	}
}

// nextHops returns the next hops of this node and of the holders' nodes.
func (c *collection) nextHops(conflict detector.Conflict) []advice.NextHop {
	var hops []advice.NextHop
	if hop, ok := c.routes.nextHop(conflict); ok {
		hops = append(hops, advice.NextHop{Node: c.routes.self, NextHop: hop})
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

var routeKinds = map[cluster.NextHopKind]string{
	cluster.NextHopUnknown: "unknown", cluster.NextHopHolder: "holder", cluster.NextHopNode: "node", cluster.NextHopAway: "away",
	cluster.NextHopDevice: "device", cluster.NextHopSelf: "self", cluster.NextHopNone: "nowhere",
}

// newRoute makes the document of a next hop. If it leads to a holder that is not in the conflict,
// only the device is known.
func newRoute(conflict detector.Conflict, h advice.NextHop, names map[string]string) api.Route {
	r := api.Route{Node: names[h.Node], To: routeKinds[h.Kind], ToNode: names[h.NextHop.Node], Device: h.Device}
	if h.Gateway.IsValid() {
		r.Gateway = h.Gateway.String()
	}
	if h.Kind == cluster.NextHopHolder {
		n := slices.IndexFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID == h.Holder })
		if n < 0 {
			r.To = routeKinds[cluster.NextHopDevice]
		} else {
			r.Holder = &n
		}
	}
	return r
}

// Reply answers the query of another node. Call it in the goroutine that owns the parts. Another
// goroutine looks up the routes, for few queries at a time; further ones are answered without
// routes. There is no reply before the agent is ready: an empty one would be misleading.
func (r *Report) Reply(q cluster.Query) {
	if !r.Table.Ready() {
		return
	}
	document := r.document(q)
	conflicts := slices.Clone(document.Conflicts)
	for _, s := range document.Stories {
		if s.Conflict != nil {
			conflicts = append(conflicts, *s.Conflict)
		}
	}
	conflicts = slices.DeleteFunc(conflicts, func(c detector.Conflict) bool { return c.State != detector.Confirmed })
	if len(conflicts) > 0 {
		select {
		case r.routing <- struct{}{}:
			routes := r.newRoutes()
			go func() {
				defer func() { <-r.routing }()
				routes.addMembers(r.Cluster.Members())
				for _, c := range conflicts {
					if hop, ok := routes.nextHop(c); ok {
						document.NextHops = append(document.NextHops, hop)
					}
				}
				q.Answer <- document
			}()
			return
		default:
		}
	}
	q.Answer <- document
}
