package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

func newReports(t *testing.T) (*parts, *reports) {
	p := newParts(t)
	return p, &reports{roster: p.roster, post: p.post, count: p.count, all: make(map[detector.Key]*report)}
}

// conflicts are the numbers of those that are to be sent until a time, in their order.
func (p *parts) conflicts(until time.Time) (numbers []int) {
	for _, d := range p.due(until) {
		ip := d.Message.(*report).key.IP.As4()
		numbers = append(numbers, int(ip[2])<<8+int(ip[3]))
		p.post.Remove(d.To, d.Message.Identity())
	}
	return numbers
}

// So many open conflicts are remembered. Those that ended make room, and an end of which nobody knew needs none.
func TestReportsBound(t *testing.T) {
	p, reports := newReports(t)
	for n := range maxReports {
		reports.report(&report{key: testKey(n)}, true, noon)
	}
	for i, key := range []int{maxReports, maxReports, 3, maxReports} {
		reports.report(&report{key: testKey(key)}, i%2 == 1, noon) // an end, one too many, an end that makes room, one in its place
		if p.drops("open conflicts", dropReports, uint64(min(i, 1))); len(reports.all) != maxReports {
			t.Errorf("%d are remembered after %d more, want %d", len(reports.all), i+1, maxReports)
		}
	}
}

// A reporter gets what is open, and what ended less than ten minutes ago, in the order of the addresses, every two minutes; an agent gets nothing.
func TestReportsAgain(t *testing.T) {
	p, reports := newReports(t)
	for _, n := range []int{3, 1, 2, 1} {
		reports.report(&report{key: testKey(n)}, len(reports.all) < 3, noon)
	}
	b, r := p.join("b", 1, cluster.Agent), p.join("r", 1, cluster.Reporter)
	for _, step := range []struct {
		after time.Duration
		want  []int
	}{
		{0, []int{1, 2, 3}},
		{reportPause - 1, nil},
		{reportPause, []int{1, 2, 3}},
		{2*reportPause - 1, nil},
		{keepEnded - 1, []int{1, 2, 3}},
		{keepEnded, nil},
	} {
		reports.toOne(b, noon.Add(step.after))
		if reports.again(noon.Add(step.after)); !slices.Equal(p.conflicts(noon.Add(step.after)), step.want) {
			t.Errorf("after %v: not the conflicts %v", step.after, step.want)
		}
	}
	if reports.toOne(r, noon.Add(keepEnded)); !slices.Equal(p.conflicts(noon.Add(keepEnded)), []int{2, 3}) {
		t.Error("one reporter did not get what is open")
	}
}
