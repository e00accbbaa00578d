package report

import (
	"context"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Reply answers the query of another node. Call it in the goroutine that owns the parts. Another
// goroutine encodes the answer, and looks up the routes or makes the status, for few queries at a time; further ones are answered
// without. There is no reply before the agent is ready: an empty one would be misleading.
func (r *Report) Reply(q cluster.Query) {
	if !r.Table.Ready() {
		return
	}
	if q.Kind == cluster.QueryStatus {
		r.replyStatus(q)
		return
	}
	if hasFacts(q.Kind) && r.want(r.judged(), time.Now()) != nil && r.answering.TryAcquire(1) { // others get what is known
		go func() {
			defer r.answering.Release(1)
			if r.readFacts(context.Background()) == nil { // else the agent is stopping
				_ = r.Do(context.Background(), func() { r.reply(q) })
			}
		}()
		return
	}
	r.reply(q)
}

// reply answers all queries but those for the status.
func (r *Report) reply(q cluster.Query) {
	answer := r.answer(q)
	var confirmed []*document.Conflict
	for i := range answer.Conflicts {
		confirmed = append(confirmed, &answer.Conflicts[i])
	}
	for _, s := range answer.Stories {
		if s.Conflict != nil {
			confirmed = append(confirmed, s.Conflict)
		}
	}
	confirmed = slices.DeleteFunc(confirmed, func(c *document.Conflict) bool { return c.State != detector.Confirmed })
	var routes *routes
	var members []cluster.Member
	elsewhere := q.Kind == cluster.QueryStories && len(confirmed) == 0 // where this node sends packets to the address is worth knowing, too
	if len(confirmed) > 0 || elsewhere {
		members = r.Cluster.Members()
		answer.Absences = absences(members, confirmed)
		if r.routing.TryAcquire(1) {
			routes = r.newRoutes()
			r.holding(routes, q.IP)
		} else {
			tooManyRouted.Exceeded(1)
		}
	}
	go func() {
		if routes != nil {
			routes.addMembers(members)
			for _, c := range confirmed {
				if route, ok := routes.of(*c); ok {
					c.Routes = []document.Route{route}
				}
			}
			if elsewhere {
				answer.Routes = routes.legs(q.IP)
			}
			r.routing.Release(1)
		}
		r.send(q, answer)
	}()
}

// send encodes an answer and hands it over.
func (r *Report) send(q cluster.Query, a document.Answer) {
	r.encoding <- struct{}{}
	defer func() { <-r.encoding }()
	a.At = time.Now().Round(0)
	packed, err := a.Encode(q.Limit)
	if err != nil {
		r.Log.Warn("an answer for another node cannot be encoded", "error", err)
		return // the other node says that this one does not answer
	}
	q.Answer <- packed
}

// absences returns when the nodes of holders were cut off, as this node saw it.
func absences(members []cluster.Member, conflicts []*document.Conflict) (list []document.Absence) {
	nodes := make(map[string]bool)
	for _, c := range conflicts {
		for _, b := range c.Holders {
			nodes[b.NodeID()] = true
		}
	}
	for _, m := range members {
		if nodes[m.NodeID()] && m.Live() && !m.AwayFrom.IsZero() {
			list = append(list, document.Absence{Node: m.Name, BootID: m.Boot, From: m.AwayFrom.Round(0), Until: m.AwayUntil.Round(0)})
		}
	}
	return list
}

// replyStatus answers with the status, which waits for the goroutine that this one is.
func (r *Report) replyStatus(q cluster.Query) {
	if !r.stating.TryAcquire(1) {
		return // the other node says that this one does not answer
	}
	go func() {
		defer r.stating.Release(1)
		status, err := r.Status(context.Background(), document.Query{})
		if err == nil { // else the agent is stopping
			r.send(q, document.Answer{Status: &status})
		}
	}()
}
