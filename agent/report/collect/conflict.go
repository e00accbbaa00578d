package collect

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/document/say"
)

// judge adds the judgement to a conflict, and the route of the asking node to one that is confirmed, unless it is a drill: then it has no
// routes, either.
func (c *Collection) judge(conflict *document.Conflict) {
	if conflict.State == detector.Suspected || conflict.Drill || c.judged == MaxRouted {
		conflict.Routes = nil
		return
	}
	c.judged++
	if conflict.State == detector.Resolved {
		conflict.Routes = nil
	} else if c.Route != nil {
		if own, ok := c.Route(*conflict); ok {
			conflict.Routes = append([]document.Route{own}, conflict.Routes[:min(len(conflict.Routes), merge.MaxRoutes-1)]...)
		}
	}
	ctx := c.around
	ctx.Now, ctx.Away = time.Now(), c.awayFrom(conflict)
	conflict.Judgement = judge.Of(*conflict, ctx)
	say.Fill(conflict, c.addresses)
}

// awayFrom returns when nodes were cut off, by NodeID: as Self saw it, which may have started later, and as the nodes with holders did. Each
// may know of another time.
func (c *Collection) awayFrom(conflict *document.Conflict) map[string][]judge.Away {
	all, asked := make(map[string][]judge.Away), make(map[string]bool)
	for id, away := range c.around.Away {
		all[id] = slices.Clone(away)
	}
	for _, b := range conflict.Holders {
		by := b.NodeID()
		if asked[by] {
			continue
		}
		asked[by] = true
		for _, a := range c.away[by] {
			id := cluster.NodeID(a.Node, a.BootID)
			all[id] = append(all[id], judge.Away{From: a.From, Until: a.Until})
		}
	}
	return all
}
