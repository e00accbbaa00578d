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

// maxRoutes bounds the nodes whose next hops to one address are shown.
const maxHops = 16

// conflict makes the document of a conflict, with where packets go and what to do about it.
func (c *collection) conflict(conflict detector.Conflict) api.Conflict {
	document := api.NewConflict(conflict)
	if conflict.State != detector.Confirmed || c.advised == maxRoutedConflicts {
		return document
	}
	c.advised++
	hops := c.nextHops(conflict)
	names := nodeNames(conflict, hops)
	for _, l := range hops {
		document.Routes = append(document.Routes, newRoute(conflict, l, names))
	}
	document.Advice = advice.Of(conflict, hops, names)
	if document.Advice != nil {
		c.addAddresses(document.Advice.Remove, conflict)
	}
	return document
}

// locate adds the addresses of the nodes: one cannot log in to a boot.
func (c *collection) addAddresses(removals []api.Removal, conflict detector.Conflict) {
	for n := range removals {
		r := &removals[n]
		at, ok := c.routes.addresses[conflict.Holders[r.Holder].Holder.ID.Node]
		if ok && r.On != "" {
			r.Address = at.String()
		}
	}
}

// nextHops are those of this node and of the nodes that have the holders.
func (c *collection) nextHops(conflict detector.Conflict) []advice.NextHop {
	var hops []advice.NextHop
	if hop, ok := c.routes.nextHop(conflict); ok {
		hops = append(hops, advice.NextHop{Node: c.routes.self, NextHop: hop})
	}
	others := slices.SortedStableFunc(slices.Values(c.hops[conflict.Key]), func(x, y advice.NextHop) int {
		return cmp.Compare(x.Node, y.Node)
	})
	for _, other := range others {
		with := slices.ContainsFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID.Node == other.Node })
		known := slices.ContainsFunc(hops, func(l advice.NextHop) bool { return l.Node == other.Node })
		if with && !known && len(hops) < maxHops {
			hops = append(hops, other)
		}
	}
	return hops
}

// receive takes the next hops that the answers give.
func (c *collection) collectHops() {
	c.hops = make(map[detector.Key][]advice.NextHop)
	for _, a := range c.answers {
		for _, l := range a.Document.NextHops[:min(len(a.Document.NextHops), maxRoutedConflicts)] {
			c.hops[l.Key] = append(c.hops[l.Key], advice.NextHop{Node: a.Member.NodeID(), NextHop: l})
		}
	}
}

// nodeNames names the nodes of a conflict, by their boots where two have one name.
func nodeNames(conflict detector.Conflict, hops []advice.NextHop) func(id string) string {
	var ids []string
	for _, b := range conflict.Holders {
		ids = append(ids, b.Holder.ID.Node)
	}
	for _, l := range hops {
		ids = append(ids, l.Node)
		if l.NextHop.Node != "" {
			ids = append(ids, l.NextHop.Node)
		}
	}
	names := namesOf(ids)
	return func(id string) string { return names[id] }
}

// namesOf gives each id the name of its node.
func namesOf(ids []string) map[string]string {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	names := make(map[string]string)
	for n, name := range merge.Names(ids) {
		names[ids[n]] = name
	}
	return names
}

var routeKinds = map[cluster.NextHopKind]string{
	cluster.NextHopUnknown: "unknown", cluster.NextHopHolder: "holder", cluster.NextHopNode: "node", cluster.NextHopAway: "away",
	cluster.NextHopDevice: "device", cluster.NextHopSelf: "self", cluster.NextHopNone: "nowhere",
}

// newRoute makes the document of a next hop. One to a holder that the conflict does not have is
// only known to be a device.
func newRoute(conflict detector.Conflict, l advice.NextHop, names func(string) string) api.Route {
	r := api.Route{Node: names(l.Node), To: routeKinds[l.Kind], ToNode: names(l.NextHop.Node), Device: l.Device}
	if l.Gateway.IsValid() {
		r.Gateway = l.Gateway.String()
	}
	if l.Kind == cluster.NextHopHolder {
		n := slices.IndexFunc(conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID == l.Holder })
		if n < 0 {
			r.To = routeKinds[cluster.NextHopDevice]
		} else {
			r.Holder = &n
		}
	}
	return r
}

// Reply answers the query of another node. It is for the goroutine that owns the parts. Routes
// are looked up in another goroutine, for few queries at a time; further ones are answered
// without routes, and none before the agent is ready: no answer is better than an empty one.
func (r *Report) Reply(q cluster.Query) {
	if !r.Table.Ready() {
		return
	}
	document := r.document(q)
	var open []detector.Conflict
	for _, c := range document.Conflicts {
		if c.State == detector.Confirmed {
			open = append(open, c)
		}
	}
	for _, s := range document.Stories {
		if s.Conflict != nil && s.Conflict.State == detector.Confirmed {
			open = append(open, *s.Conflict)
		}
	}
	if len(open) > 0 {
		select {
		case r.routing <- struct{}{}:
			routes := r.newRoutes()
			go func() {
				defer func() { <-r.routing }()
				routes.addMembers(r.Cluster.Members())
				document.NextHops = routes.nextHops(open)
				r.Cluster.Reply(q.ID, document)
			}()
			return
		default:
		}
	}
	r.Cluster.Reply(q.ID, document)
}
