package report

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Reply answers the query of another node. Call it in the goroutine that owns the parts. Another
// goroutine looks up the routes or makes the status, for few queries at a time; further ones are answered
// without. There is no reply before the agent is ready: an empty one would be misleading.
func (r *Report) Reply(q cluster.Query) {
	if !r.Table.Ready() {
		return
	}
	if q.Kind == cluster.QueryStatus {
		r.replyStatus(q)
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
		members := r.Cluster.Members()
		document.Away = awayOf(members, conflicts)
		select {
		case r.routing <- struct{}{}:
			routes := r.newRoutes()
			go func() {
				defer func() { <-r.routing }()
				routes.addMembers(members)
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

// awayOf returns when the nodes of holders were cut off, as this node saw it.
func awayOf(members []cluster.Member, conflicts []detector.Conflict) (list []cluster.Away) {
	nodes := make(map[string]bool)
	for _, c := range conflicts {
		for _, b := range c.Holders {
			nodes[b.Holder.ID.Node] = true
		}
	}
	for _, m := range members {
		if nodes[m.NodeID()] && m.Live() && !m.AwayFrom.IsZero() {
			list = append(list, cluster.Away{Node: m.NodeID(), From: m.AwayFrom, Until: m.AwayUntil})
		}
	}
	return list
}

// replyStatus answers with the status, which waits for the goroutine that this one is.
func (r *Report) replyStatus(q cluster.Query) {
	select {
	case r.stating <- struct{}{}:
	default:
		return // the other node says that this one does not answer
	}
	go func() {
		defer func() { <-r.stating }()
		status, err := r.Status(context.Background(), api.Query{})
		if err != nil {
			return // the agent is stopping
		}
		document, err := json.Marshal(status)
		if err == nil {
			q.Answer <- cluster.Document{Status: document}
		}
	}()
}
