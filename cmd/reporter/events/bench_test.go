package events

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// BenchmarkMinute is a minute of the replica that writes, among 5,000 nodes which each send a summary every two minutes; 1% of them
// have unreserved addresses. The API server answers at once, so that a turn of the loop writes one Event.
func BenchmarkMinute(b *testing.B) {
	const nodes, turn = 5000, 200 * time.Millisecond
	for _, conflicts := range []int{0, 30, 500, 10_000} {
		b.Run(fmt.Sprint(conflicts, " conflicts"), func(b *testing.B) {
			p := New("r1", "kubectl dupip", DefaultRenew, oneNetwork)
			now := time.Unix(1e9, 0)
			p.Lead(nil, now)
			var alive []cluster.Member
			node := func(n int) string { return fmt.Sprintf("worker-%d/6d3c9a2e-5b1f-4f0e-9c57-%012x", n, n) }
			for n := range nodes {
				alive = append(alive, agents(node(n))...)
			}
			summarize := func(n int) {
				s := cluster.Summary{Version: "0.2.0", Interfaces: map[string]int{"attached": 110}, Findings: map[string]int{}}
				if n%100 == 0 {
					s.Findings[document.Unreserved+" address"] = 3
				}
				p.Summary(node(n), s)
			}
			w := world{now: now}
			for n := range conflicts {
				c := w.conflict(n, detector.Confirmed)
				for i, at := range []int{n, nodes - 1 - n} {
					c.Holders[i].Node, c.Holders[i].BootID = cluster.NodeName(node(at)), cluster.BootID(node(at))
					p.Conflict(cluster.Report{Node: node(at)}, c, now)
				}
			}
			written, sent := 0, 0
			minute := func() {
				for end := now.Add(time.Minute); now.Before(end); now = now.Add(turn) {
					for due := int(now.Unix()-1e9) * nodes / 120; sent < due; sent++ {
						summarize(sent % nodes)
					}
					if now.UnixMilli()%10_000 == 0 {
						p.Members(alive, now)
					}
					p.Judgements(now)
					if next := p.Next(now); next != nil {
						p.Done(next, nil, now)
						written++
					}
				}
			}
			for range 30 { // all Events are written, and are renewed from now on
				minute()
			}
			written = 0
			for b.Loop() {
				minute()
			}
			b.ReportMetric(float64(written)/float64(b.N), "writes/min")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "cpu-ms/min")
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			runtime.KeepAlive(p)
			p = nil
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(before.HeapAlloc-after.HeapAlloc)/1e6, "MB")
		})
	}
}
