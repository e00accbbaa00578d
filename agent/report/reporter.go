package report

import (
	"context"
	"hash/maphash"
	"reflect"
	"time"

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
	for kind, n := range r.paths.Last().Counts {
		if n > 0 {
			s.Findings[kind+" address"] = n
		}
	}
	for kind, n := range r.lastSegment().count {
		if n > 0 {
			s.Findings[kind+" address"] = n
		}
	}
	if _, n := r.Table.Lost(0); n > 0 {
		s.Findings["dad failed address"] = n
	}
	s.Bindings = r.hash()
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

// seed is that of [Report.hash]: an agent that starts again has another one, and is asked again.
var seed = maphash.MakeSeed()

// hash returns a hash of what reporters read of this node's bindings, in any order; never zero, which is that of older versions.
func (r *Report) hash() uint64 {
	type read struct {
		key             detector.Key
		id              detector.HolderID
		pod             detector.Pod
		sandbox         detector.Sandbox
		given           detector.Given
		isHost, isThere bool
	}
	sum, node := uint64(0), r.Self.NodeID()
	r.Detector.Bindings(func(b *detector.Binding) bool {
		if h := &b.Holder; h.ID.Node == node {
			sum += maphash.Comparable(seed, read{b.Key, h.ID, h.Pod, h.Sandbox, h.Given, b.Evidence == detector.Host, b.Evidence >= detector.Configured})
		}
		return false // no copies
	})
	return max(sum, 1)
}

// reportConflict sends a conflict that was confirmed, has changed or is resolved to the reporters, unless it is a drill. Call it in the
// goroutine that owns the parts.
func (r *Report) reportConflict(c detector.Conflict) {
	if !r.alone() && c.State != detector.Suspected && !c.IsDrill() {
		doc := r.recentView().conflict(c)
		r.Cluster.ReportConflict(c.Key, c.State == detector.Confirmed, doc.EncodeReport)
	}
}
