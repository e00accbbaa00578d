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
	// compareEvery is how often books and wire are compared if one of them has changed. After a comparison there is none for share times as long
	// as it took, but for slowest at most.
	compareEvery = 2 * time.Second
	share        = 10
	slowest      = 5 * time.Second
	// anyway is after what time they are compared although nothing has changed: some differences are none before they have lasted.
	anyway = time.Minute
	// apart is for how long they must differ before that is a finding. Then the objects are read again: a watch may be late.
	apart = 10 * time.Second
	// maxAgain bounds the objects that are read again after one comparison, the most urgent first.
	maxAgain = 20
	// maxFindings bounds the findings that are kept, maxDifferences what may become some, of one kind.
	maxFindings, maxDifferences = 1024, 8192
	// maxFormer bounds the reservations that have ended while their holders live.
	maxFormer = 4096
)

// difference is what may become a finding: after what time, and by which objects.
type difference struct {
	document.Finding
	after   time.Duration
	objects []place
	agent   *agent // of the node that it is about; nil for none
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

// sighting is when a difference was seen first, and since when the objects are read again and the agent is asked again: zero for not yet.
type sighting struct {
	at, again time.Time
	told      bool // it is a finding
	round     int
}

// again is a sighting that waits for its second reading.
type again struct {
	*sighting
	objects []place
}

// comparison is what is found.
type comparison struct {
	differ  map[candidate]*sighting
	round   int
	waiting bool           // a difference is not decided yet
	byKind  map[string]int // differences
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
	return comparison{differ: make(map[candidate]*sighting), former: make(map[netip.Addr]former)}
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
		waiting := b.step(began)
		wait = min(max(compareEvery, share*time.Since(began)), slowest)
		b.mu.Unlock()
		b.readAgain(ctx, waiting)
	}
}

// readAgain reads objects again, so that the next comparison decides.
func (b *Books) readAgain(ctx context.Context, list []again) {
	failed, done := false, make(map[string]bool)
	for _, w := range list {
		for _, o := range w.objects {
			if o.path != "" && !done[o.path] && !failed {
				failed = o.of.get(ctx, b, o.key, o.path) != nil // the others later, too
				done[o.path] = true
			}
		}
		if failed {
			b.mu.Lock()
			w.again = time.Time{}
			b.mu.Unlock()
		}
	}
}

// sources are all that are read.
func (b *Books) sources() []*source {
	list := []*source{b.pods.source, b.nodes.source}
	for _, book := range b.ipams {
		list = append(list, book.sources...)
	}
	return list
}

// step compares once, if anything has changed or is to be decided, or a minute has passed. It returns what is to be read again.
func (b *Books) step(now time.Time) (list []again) {
	changed := b.wire.changed || b.waiting || now.Sub(b.at) >= anyway
	for _, s := range b.sources() {
		changed, s.changed = changed || s.changed, false
	}
	if b.wire.changed = false; !changed || !current(b.pods.source, b.nodes.source) {
		return nil
	}
	b.round++
	before := b.found
	b.at, b.waiting, b.found, b.omitted = now, false, nil, 0
	all := b.differences(now)
	slices.SortStableFunc(all, func(x, y difference) int { return cmp.Compare(urgency(x.Kind), urgency(y.Kind)) })
	objects := 0
	for _, d := range all {
		key := candidateOf(&d.Finding)
		s := b.differ[key]
		if s == nil {
			s = &sighting{at: now}
			b.differ[key] = s
		}
		s.round = b.round
		due := !s.told && now.Sub(s.at) >= max(d.after, apart)
		switch {
		case due && !s.again.IsZero() && (d.agent == nil || d.agent.isCurrent(s.again)):
			s.told = true
		case due && s.again.IsZero() && objects+len(d.objects) <= maxAgain:
			objects += len(d.objects)
			s.again = now
			if list = append(list, again{s, d.objects}); d.agent != nil {
				d.agent.again = true
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
	b.keepUnread(before)
	maps.DeleteFunc(b.differ, func(_ candidate, s *sighting) bool { return s.round != b.round })
	for _, n := range b.byKind {
		b.omitted += max(n-maxDifferences, 0)
	}
	slices.SortFunc(b.found, func(x, y document.Finding) int {
		return cmp.Or(cmp.Compare(urgency(x.Kind), urgency(y.Kind)), x.IP.Compare(y.IP), cmp.Compare(x.Node, y.Node))
	})
	return list
}

func urgency(kind string) int { return slices.Index(document.FindingKinds, kind) }

// keepUnread keeps what was found in books that cannot be read now.
func (b *Books) keepUnread(found []document.Finding) {
	unread := func(name string) bool {
		return slices.ContainsFunc(b.ipams, func(book *ipam) bool { return book.name == name && !current(book.sources...) })
	}
	for _, f := range found {
		if unread(f.Book) && len(b.found) < maxFindings {
			b.found = append(b.found, f)
		}
	}
	for key, s := range b.differ {
		if unread(key.book) {
			s.round = b.round
		}
	}
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
