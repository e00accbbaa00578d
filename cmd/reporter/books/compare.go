package books

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const (
	// compareEvery is how often books and wire are compared if one of them has changed. Of the time of a processor it takes one in share,
	// unless it came less often than slowest then.
	compareEvery = 2 * time.Second
	share        = 10
	slowest      = 5 * time.Second
	// apart is for how long they must differ before that is a finding. Then the objects are read again: a watch may be late.
	apart = 10 * time.Second
	// maxAgain bounds the objects that are read again after one comparison.
	maxAgain = 20
	// maxFindings bounds the findings that are kept.
	maxFindings = 1024
	// maxFormer bounds the reservations that have ended while their holders live.
	maxFormer = 4096
)

// difference is what may become a finding: after what time, and by which objects.
type difference struct {
	document.Finding
	after   time.Duration
	objects []place
	// freed: what looks for leaked addresses will free this one, after grace.
	freed bool
	grace time.Duration
}

// candidate identifies a difference.
type candidate struct {
	kind, book, node, pod, other string
	ip                           netip.Addr
}

func candidateOf(f *document.Finding) candidate {
	return candidate{f.Kind, f.Book, f.NodeID(), f.Pod.String(), cmp.Or(f.ReservedPod.String(), f.ReservedNode), f.IP}
}

// since is when a difference was seen first. again: its objects were read again since it was due. told: it is a finding.
type since struct {
	at          time.Time
	again, told bool
	round       int
}

// comparison is what is found.
type comparison struct {
	differ  map[candidate]*since
	round   int
	waiting bool // a difference is not decided yet
	found   []document.Finding
	omitted int
	former  map[netip.Addr]former
	at      time.Time // the last one; zero for never
	named   bool      // agents have the names of Nodes
}

// former is a reservation that has ended while its holder lives.
type former struct {
	ended
	book   string
	holder detector.HolderID
}

func newComparison() comparison {
	return comparison{differ: make(map[candidate]*since), former: make(map[netip.Addr]former)}
}

// compare compares until ctx ends.
func (b *Books) compare(ctx context.Context) {
	for wait := compareEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if !b.opts.Answers() {
			continue
		}
		b.mu.Lock()
		began := time.Now()
		again := b.step(began)
		wait = min(max(compareEvery, share*time.Since(began)), slowest)
		b.mu.Unlock()
		b.readAgain(ctx, again)
	}
}

// readAgain reads objects again, so that the next comparison decides.
func (b *Books) readAgain(ctx context.Context, again []place) {
	for _, o := range again {
		if o.of.get(ctx, b, o.key, o.path) != nil { // later, then
			b.mu.Lock()
			for _, s := range b.differ {
				s.again = s.told
			}
			b.mu.Unlock()
			break
		}
	}
}

// sources are all that are read.
func (b *Books) sources() []*source {
	list := []*source{b.pods.source, b.nodes.source}
	for _, i := range b.names() {
		list = append(list, i.sources()...)
	}
	return list
}

// step compares once, if anything has changed or is to be decided. It returns the objects that are to be read again.
func (b *Books) step(now time.Time) (again []place) {
	changed := b.wire.changed || b.waiting
	for _, s := range b.sources() {
		changed, s.changed = changed || s.changed, false
	}
	if b.wire.changed = false; !changed || !current(b.pods.source, b.nodes.source) {
		return nil
	}
	b.round++
	b.at, b.waiting = now, false
	b.found, b.omitted = nil, 0
	for _, d := range b.differences(now) {
		key := candidateOf(&d.Finding)
		s := b.differ[key]
		if s == nil {
			s = &since{at: now}
			b.differ[key] = s
		}
		s.round = b.round
		due := now.Sub(s.at) >= max(d.after, apart)
		switch {
		case s.told:
		case due && s.again:
			s.told = true
		case due && len(again)+len(d.objects) <= maxAgain:
			s.again = true
			for _, o := range d.objects {
				if o.path != "" && !slices.Contains(again, o) {
					again = append(again, o)
				}
			}
		}
		switch {
		case !s.told:
			b.waiting = true
		case len(b.found) == maxFindings:
			b.omitted++
		default:
			b.found = append(b.found, d.finding(s.at))
		}
	}
	maps.DeleteFunc(b.differ, func(_ candidate, s *since) bool { return s.round != b.round })
	slices.SortFunc(b.found, func(x, y document.Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(document.FindingKinds, x.Kind), slices.Index(document.FindingKinds, y.Kind)), x.IP.Compare(y.IP), cmp.Compare(x.Node, y.Node))
	})
	return again
}

// finding is the difference that was seen first at a time.
func (d *difference) finding(at time.Time) document.Finding {
	f := d.Finding
	if f.Since.IsZero() {
		f.Since = at.Round(0)
	}
	if d.freed {
		f.FreedBy = at.Add(d.grace).Round(0)
	}
	return f
}
