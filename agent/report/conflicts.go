package report

import (
	"time"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// view makes documents of conflicts, with what is found once for all of them. It belongs to the goroutine that owns the parts.
type view struct {
	*Report
	shared map[[2]string]int       // the addresses that two nodes share, by NodeIDs in order
	inUse  map[string]bool         // the networks of CNI's configuration that the primary interface of any pod is in
	pods   map[string]detector.Pod // by sandbox
	made   time.Time
}

// recentView returns a view for one conflict of many. It is up to a second old, or older if it takes long to make one.
func (r *Report) recentView() *view {
	if now := time.Now(); r.view == nil || !now.Before(r.viewPace.Next(r.view.made.Add(time.Second))) {
		r.view = r.newView(r.Detector.Conflicts(false))
		r.viewPace.Done(now, time.Now())
	}
	return r.view
}

func (r *Report) newView(conflicts []detector.Conflict) *view {
	v := &view{Report: r, shared: make(map[[2]string]int), inUse: make(map[string]bool), pods: make(map[string]detector.Pod), made: time.Now()}
	for _, c := range conflicts {
		if !isJudged(&c) {
			continue
		}
		for _, pair := range pairs(c.Holders) {
			v.shared[pair]++
		}
	}
	for i := range r.Table.All() {
		v.inUse[audit.NetworkOf(i)] = true
		v.pods[i.Pod.Sandbox.ID] = i.Pod.Pod
	}
	return v
}

// pairs returns the pairs of nodes that have one of these holders each.
func pairs(holders []detector.Binding) [][2]string {
	var nodes []string
	for _, b := range holders {
		nodes = append(nodes, b.Holder.ID.Node)
	}
	return merge.PairsOf(nodes)
}

// conflict returns the document of a conflict with what this node knows besides. While it is open that is what the books say now, later
// what they said when they were read first.
func (v *view) conflict(c detector.Conflict) document.Conflict {
	doc := document.NewConflict(c)
	said := v.causes.said[c.ID]
	if c.State == detector.Confirmed && v.Books.Last().At.After(c.SecondSeen) {
		said = v.books(c.Key.IP)
		document.Clean(&said, 0, time.Time{})
	}
	doc.Books = named(said, doc.Holders)
	if c.State == detector.Suspected || doc.Drill {
		return doc
	}
	doc.Acknowledged = v.ackOf(&c)
	if c.State == detector.Confirmed {
		for _, pair := range pairs(c.Holders) {
			if n := v.shared[pair]; n > 1 {
				doc.Shared = max(doc.Shared, n)
			}
		}
	}
	stale := c.State == detector.Confirmed && time.Since(v.facts.last.at) > staleAfter
	for i, b := range c.Holders {
		doc.Holders[i].Facts = v.facts.known[c.ID][b.Holder.ID]
		if f := doc.Holders[i].Facts; f != nil && stale {
			old := *f // the other one is read by others
			old.Behind = ""
			doc.Holders[i].Facts = &old
		}
	}
	return doc
}
