package gossip

import (
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// shelfTime is how long a document is kept after it was asked for last.
	shelfTime = 15 * time.Second
	// maxDocuments bounds the documents, maxOfOne those of one asker, maxShelf their bytes.
	maxDocuments = 64
	maxOfOne     = 8
	maxShelf     = 8 << 20
	// Each document takes a look at all that the agent knows: for everybody together at
	// most so many at once, and so many per second.
	documentRate, documentBurst = 50, 100
)

const (
	dropQueryRate  = "queries of one node or of all"
	dropDocument   = "document dropped for another"
	dropNoDocument = "query or reply without a document"
)

// shelf has the documents that other nodes are reading, page by page. It has few, so
// that looking through all of them is cheap.
type shelf struct {
	documents []*document
	size      int
	limit     *rate.Limiter
}

// document is what this node's agent answers to the query of another.
type document struct {
	id    uint64 // for the agent: even, as those of this node's queries are odd
	from  *roster.Node
	asker wire.MemberID
	query uint64 // as the asker calls it
	used  time.Time
	pages [][]byte // none before the agent has answered
	size  int
}

func (s *shelf) init() { s.limit = rate.NewLimiter(documentRate, documentBurst) }

func (s *shelf) find(is func(*document) bool) *document {
	if i := slices.IndexFunc(s.documents, is); i >= 0 {
		return s.documents[i]
	}
	return nil
}

func (s *shelf) remove(d *document) {
	if i := slices.Index(s.documents, d); i >= 0 {
		s.documents = slices.Delete(s.documents, i, i+1)
		s.size -= d.size
	}
}

// expire forgets what nobody has asked for, and returns when to look again.
func (s *shelf) expire(now time.Time) (next time.Time) {
	for _, d := range slices.Clone(s.documents) {
		if until := d.used.Add(shelfTime); until.After(now) {
			next = earliest(next, until)
		} else {
			s.remove(d)
		}
	}
	return next
}

// evict removes the document that was asked for the longest ago.
func (s *shelf) evict(which func(*document) bool) bool {
	var oldest *document
	for _, d := range s.documents {
		if which(d) && (oldest == nil || d.used.Before(oldest.used)) {
			oldest = d
		}
	}
	if oldest == nil {
		return false
	}
	s.remove(oldest)
	return true
}

// add makes room for a document, and counts those that have to go.
func (s *shelf) add(d *document, count *counters) {
	ofOne := func(o *document) bool { return o.from == d.from }
	n := 0
	for _, o := range s.documents {
		if ofOne(o) {
			n++
		}
	}
	if n >= maxOfOne && s.evict(ofOne) {
		count.drop(dropDocument)
	} else if len(s.documents) >= maxDocuments && s.evict(anyDocument) {
		count.drop(dropDocument)
	}
	s.documents = append(s.documents, d)
}

func anyDocument(*document) bool { return true }

// fill puts pages into a document.
func (s *shelf) fill(d *document, pages [][]byte, count *counters) {
	size := 0
	for _, page := range pages {
		size += len(page)
	}
	others := func(o *document) bool { return o != d && o.size > 0 }
	for s.size+size > maxShelf && s.evict(others) {
		count.drop(dropDocument)
	}
	d.pages, d.size = pages, size
	s.size += size
}

// receiveQuery takes in that a node asks for a page. The first page has the agent asked,
// unless it was already.
func (g *Gossip) receiveQuery(from *roster.Node, q wire.Query, now time.Time) {
	s, limits := &g.queries.shelf, g.peer(from)
	if !limits.pages.AllowN(now, 1) {
		g.count.drop(dropQueryRate)
		return
	}
	s.expire(now)
	d := s.find(func(d *document) bool { return d.from == from && d.asker == from.Member && d.query == q.ID })
	switch {
	case d != nil:
		d.used = now
		g.sendPage(d, q.Page, now)
	case q.Page > 0:
		g.count.drop(dropNoDocument)
	case !limits.queries.AllowN(now, 1), !s.limit.AllowN(now, 1):
		g.count.drop(dropQueryRate)
	default:
		d = &document{id: rand.Uint64() &^ 1, from: from, asker: from.Member, query: q.ID, used: now}
		if g.tell(cluster.Query{ID: d.id, Kind: q.Kind, IP: q.IP, All: q.All}) {
			s.add(d, g.count)
		}
	}
}

// Reply answers the [cluster.Query] message with that ID.
func (g *Gossip) Reply(id uint64, d cluster.Document) {
	at := time.Now()
	g.in.call(func() { g.reply(id, d, at) })
}

func (g *Gossip) reply(id uint64, answer cluster.Document, at time.Time) {
	if q := g.queries.open[id]; q != nil {
		g.answerSelf(q, answer, at)
		return
	}
	s := &g.queries.shelf
	d := s.find(func(d *document) bool { return d.id == id && d.pages == nil })
	if d == nil {
		g.count.drop(dropNoDocument)
		return
	}
	s.fill(d, wire.SplitDocument(answer, g.roster.Self().ID, at), g.count)
	g.sendPage(d, 0, at)
}

// sendPage sends a page, if the agent has answered yet.
func (g *Gossip) sendPage(d *document, page int, now time.Time) {
	switch {
	case d.pages == nil:
	case page >= len(d.pages):
		g.count.drop(dropNoDocument)
	case d.from.Alive && d.from.Member == d.asker:
		g.out.add(d.from, wire.Answer{ID: d.query, Page: page, Pages: len(d.pages), Entries: d.pages[page]}, now)
	}
}
