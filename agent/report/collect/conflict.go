package collect

import (
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/advice"
	"github.com/dupip/dupip/document/merge"
)

// advise adds advice to a confirmed conflict, and the route of the asking node, unless it is a drill: then it has no routes, either.
func (c *Collection) advise(conflict *document.Conflict) {
	if conflict.State != detector.Confirmed || conflict.Drill || c.advised == MaxRouted {
		conflict.Routes = nil
		return
	}
	c.advised++
	if c.Route != nil {
		if own, ok := c.Route(*conflict); ok {
			conflict.Routes = append([]document.Route{own}, conflict.Routes[:min(len(conflict.Routes), merge.MaxRoutes-1)]...)
		}
	}
	var ids []string
	for _, b := range conflict.Holders {
		ids = append(ids, b.NodeID())
	}
	for _, r := range conflict.Routes {
		ids = append(ids, r.NodeID())
	}
	if conflict.Advice = advice.Of(*conflict, merge.Names(ids), c.awayFrom(conflict)); conflict.Advice == nil {
		return
	}
	for n := range conflict.Advice.Remove {
		r := &conflict.Advice.Remove[n]
		at, known := c.addresses[conflict.Holders[r.Holder].NodeID()]
		if known && r.On != "" {
			r.Address = at.String()
		}
	}
}

// awayFrom returns when nodes were cut off: as Self saw it, which may have started later, and as the nodes with holders did. Each
// may know of another time.
func (c *Collection) awayFrom(conflict *document.Conflict) map[string][]advice.Away {
	all, nodes := make(map[string][]advice.Away), map[string]bool{c.Self.NodeID(): true}
	for _, b := range conflict.Holders {
		nodes[b.NodeID()] = true
	}
	for by := range nodes {
		for _, a := range c.away[by] {
			if id := cluster.NodeID(a.Node, a.BootID); nodes[id] {
				all[id] = append(all[id], advice.Away{From: a.From, Until: a.Until})
			}
		}
	}
	return all
}
