package report

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// manyConflicts returns a report with 10,000 confirmed conflicts of 100 own pods with those of another node.
func manyConflicts(b *testing.B) *Report {
	b.Helper()
	r := newReport(b, new(fakeCluster))
	now := time.Now().Add(-4 * time.Second)
	var own []detector.Sighting
	for n := range 100 {
		own = append(own, sightingOf(r.holds(fmt.Sprint("veth", n), n+1, netns.Ref{Inode: uint64(n + 1)}, uint64(n+1))))
	}
	other := detector.Sighting{Holder: holding("n2", "10.0.0.2", 1).Holder, Evidence: detector.Announced}
	for range 8 {
		for n := range 10_000 {
			for _, s := range []detector.Sighting{own[n%len(own)], other} {
				s.Key = detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})}
				s.At, s.Answer = now, true
				r.Detector.Observe(s, now)
			}
		}
		r.Detector.Tick(now)
		now = now.Add(500 * time.Millisecond)
	}
	if n := len(r.judged()); n != 10_000 {
		b.Fatalf("%d conflicts are confirmed", n)
	}
	return r
}

// BenchmarkManyConflicts measures how long an answer of a node with many conflicts keeps the goroutine that owns the parts.
func BenchmarkManyConflicts(b *testing.B) {
	r := manyConflicts(b)
	if err := r.readFacts(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func(){
		"facts":     func() { r.settle(r.judged(), time.Now()) },
		"conflicts": func() { r.localAnswer(cluster.Query{Kind: cluster.QueryConflicts}) },
		"explain":   func() { r.localAnswer(cluster.Query{Kind: cluster.QueryStories, IP: netip.MustParseAddr("10.1.0.1")}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
