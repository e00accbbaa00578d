package report

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// summaryCheck is how often the state of this node is compared with the last summary.
const summaryCheck = 5 * time.Second

// Summarize sends the state of this node to the reporters of the cluster when it changes, until ctx ends. Gossip repeats it. An agent alone
// has none.
func (r *Report) Summarize(ctx context.Context) {
	ticker := time.NewTicker(summaryCheck)
	defer ticker.Stop()
	var last *cluster.Summary
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			var summary cluster.Summary
			if r.Do(ctx, func() { summary = r.summary() }) != nil {
				return
			}
			summary.Audit = r.ownAudit().Verdict
			if last == nil || !reflect.DeepEqual(summary, *last) {
				r.Cluster.ReportSummary(summary)
				last = &summary
			}
		}
	}
}

// maxRanges bounds the ranges in a summary.
const maxRanges = 8

// summary returns the state of this node, without its audit. Call it in the goroutine that owns the parts.
func (r *Report) summary() cluster.Summary {
	s := cluster.Summary{Version: r.Self.Version, Interfaces: r.byState(), Findings: make(map[string]int)}
	for _, c := range r.Detector.Conflicts(false) {
		if !c.IsDrill() {
			s.Findings["conflict "+c.State.String()]++
		}
	}
	last := r.Books.Last()
	for kind, n := range last.Count() {
		if n > 0 {
			s.Findings[kind+" address"] = n
		}
	}
	if _, n := r.Table.Lost(0); n > 0 {
		s.Findings["dad failed address"] = n
	}
	s.Bindings = 1 // zero is that of an older version
	node := r.Self.NodeID()
	for _, b := range r.Detector.Bindings(func(b *detector.Binding) bool { return b.Holder.ID.Node == node }) {
		h := b.Holder
		s.Bindings += xxhash.Sum64String(fmt.Sprint(b.Key, h.ID, h.Pod, h.Sandbox, h.Given, b.Evidence == detector.Host, b.Evidence >= detector.Configured)) // in any order
	}
	inUse := r.recentView().inUse
	for _, book := range last.Books {
		for _, covered := range book.Ranges {
			if inUse[book.Network] && len(s.Ranges) < maxRanges {
				s.Ranges = append(s.Ranges, covered.String())
			}
		}
	}
	return s
}

// reportConflict sends a conflict that was confirmed, has changed or is resolved to the reporters, unless it is a drill. Call it in the
// goroutine that owns the parts.
func (r *Report) reportConflict(c detector.Conflict) {
	if !r.alone() && c.State != detector.Suspected && !c.IsDrill() {
		doc := r.recentView().conflict(c)
		r.Cluster.ReportConflict(c.Key, c.State == detector.Confirmed, doc.EncodeReport)
	}
}
