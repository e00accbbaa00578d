package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxQueries bounds the queries of this node that are under way.
	maxQueries = 8
	// maxFlight bounds the members that one query asks at a time, maxWindow the pages that
	// are asked of one of them: what comes at once fits the inbox.
	maxFlight = 64
	maxWindow = 8
	// maxFurther bounds the bytes of all pages of a query but the first of each member.
	maxFurther = 8 << 20
	// maxThings bounds what is in the documents of one query, and with it about 30 MB.
	maxThings = 1 << 17
)

// queryPauses are those after each sending of what a member has not answered. After the
// last it is missing.
var queryPauses = [...]time.Duration{
	300 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 1200 * time.Millisecond,
}

var (
	errNobody  = errors.New("no member can be queried")
	errQueries = errors.New("too many queries at a time: try again")
)

// queries are those of this node that are under way, and the documents for others.
type queries struct {
	open  map[uint64]*query
	shelf shelf
}

func (q *queries) init() {
	q.open = make(map[uint64]*query)
	q.shelf.init()
}

// query is one query of this node.
type query struct {
	id      uint64
	asked   cluster.Query
	waiting []cluster.Member // not asked yet
	flight  map[*roster.Node]*pull
	own     []cluster.Answer // this node's
	pulled  []*pull
	missing []cluster.Member
	further int  // bytes of further pages
	ended   bool // nobody waits any more
	done    chan struct{}
}

// pull is the document of one member as it comes in.
type pull struct {
	member cluster.Member
	id     wire.MemberID
	at     time.Time // when the first page came
	total  int       // pages; 0 before that
	pages  [][]byte  // those asked for, nil where one is not there yet
	got    int
	tries  int
	next   time.Time
}

// Query requests documents from members. It returns the received ones when ctx ends or all members
// have answered. It returns an error if no member can be queried or too many queries are open.
func (g *Gossip) Query(ctx context.Context, asked cluster.Query) (cluster.Result, error) {
	if asked.Kind == cluster.QueryStories && !asked.IP.IsValid() {
		return cluster.Result{}, errors.New("querying stories: no address")
	}
	q := &query{
		// Those of other nodes are even, see shelf.
		id: rand.Uint64() | 1, asked: asked, flight: make(map[*roster.Node]*pull), done: make(chan struct{}),
	}
	q.choose(g.Members())
	if len(q.waiting) == 0 {
		if asked.Node != "" {
			return cluster.Result{}, fmt.Errorf("querying node %s: %w", asked.Node, errNobody)
		}
		return cluster.Result{}, fmt.Errorf("querying the members: %w", errNobody)
	}
	refused := make(chan struct{})
	if !g.in.call(func() { g.begin(q, refused) }) {
		return cluster.Result{}, errQueries
	}
	select {
	case <-refused:
		return cluster.Result{}, errQueries
	case <-q.done:
	case <-ctx.Done():
	}
	g.state.Lock()
	q.ended = true
	delete(g.queries.open, q.id)
	g.state.Unlock()
	return g.result(q), nil
}

// choose picks the members to ask. Those that are dead are missing, unless somebody of the
// same name is there.
func (q *query) choose(members []cluster.Member) {
	there := make(map[string]bool)
	var dead []cluster.Member
	for _, m := range members {
		switch {
		case q.asked.Node != "" && q.asked.Node != m.Name:
		case m.State == cluster.Alive, m.State == cluster.Suspect:
			q.waiting = append(q.waiting, m)
			there[m.Name] = true
		case m.State == cluster.Dead:
			dead = append(dead, m)
		}
	}
	for _, m := range dead {
		if !there[m.Name] {
			q.missing = append(q.missing, m)
			there[m.Name] = true
		}
	}
}

// result makes documents of what came in.
func (g *Gossip) result(q *query) cluster.Result {
	r := cluster.Result{Answers: q.own, Missing: append(q.missing, q.waiting...)}
	room := maxThings
	for _, p := range q.flight {
		r.Missing = append(r.Missing, p.member)
	}
	for _, p := range q.pulled {
		d, err := wire.JoinDocument(p.pages, p.member.NodeID(), p.at)
		if err != nil {
			g.count.drop(wire.Reason(err))
			r.Missing = append(r.Missing, p.member)
			continue
		}
		if left := p.total - len(p.pages); left > 0 {
			// As many again on each page that was not asked for.
			d.Omitted += max(1, (len(d.Bindings)+len(d.Conflicts)+len(d.Stories))*left/len(p.pages))
		}
		if room -= things(d); room < 0 {
			d = cluster.Document{Omitted: d.Omitted + len(d.Bindings) + len(d.Conflicts) + len(d.Stories)}
		}
		r.Answers = append(r.Answers, cluster.Answer{Member: p.member, Document: d})
	}
	return r
}

// things counts what takes up room in a document.
func things(d cluster.Document) int {
	n := len(d.Bindings) + len(d.NextHops)
	for _, c := range d.Conflicts {
		n += 1 + len(c.Holders)
	}
	for _, s := range d.Stories {
		n += 2 + len(s.Bindings) + len(s.Notes)
	}
	return n
}

func (g *Gossip) begin(q *query, refused chan<- struct{}) {
	if len(g.queries.open) >= maxQueries {
		close(refused)
		return
	}
	if q.ended {
		return
	}
	g.queries.open[q.id] = q
	g.advance(q, time.Now())
}

// advance asks further members, and ends the query if there are none.
func (g *Gossip) advance(q *query, now time.Time) {
	for len(q.waiting) > 0 && len(q.flight) < maxFlight {
		m := q.waiting[0]
		q.waiting = q.waiting[1:]
		id := wire.MemberIDOf(m.Name, m.Boot, m.Epoch)
		n := g.roster.Sender(id)
		if n == nil || !n.Alive {
			q.missing = append(q.missing, m)
			continue
		}
		p := &pull{member: m, id: id, pages: make([][]byte, 1)}
		q.flight[n] = p
		g.request(q, n, p, 0, now)
	}
	if len(q.waiting) == 0 && len(q.flight) == 0 {
		delete(g.queries.open, q.id)
		close(q.done)
	}
}

// request asks for those pages that are not there, from the page first on.
func (g *Gossip) request(q *query, n *roster.Node, p *pull, first int, now time.Time) {
	p.next = now.Add(queryPauses[p.tries])
	if n == g.roster.Self() {
		if p.got == 0 {
			m := q.asked
			m.ID, m.Node = q.id, ""
			if g.tell(m) {
				p.next = now.Add(time.Hour) // it will come, or the query ends
			}
		}
		return
	}
	for i := first; i < len(p.pages); i++ {
		if p.pages[i] == nil {
			g.out.add(n, wire.Query{ID: q.id, Page: i, Kind: q.asked.Kind, IP: q.asked.IP, All: q.asked.All}, now)
		}
	}
}

// receiveAnswer takes in a page.
func (g *Gossip) receiveAnswer(from *roster.Node, a wire.Answer, now time.Time) {
	q := g.queries.open[a.ID]
	if q == nil || q.flight[from] == nil {
		g.count.drop(dropUnasked)
		return
	}
	p := q.flight[from]
	if from.Member != p.id || p.total > 0 && a.Pages != p.total || a.Page >= len(p.pages) || p.pages[a.Page] != nil {
		g.count.drop(dropUnasked) // or it came already
		return
	}
	if a.Page == 0 {
		p.total, p.at = a.Pages, now
	}
	p.pages[a.Page] = append([]byte{}, a.Entries...)
	p.got++
	p.tries = 0
	if a.Page > 0 {
		q.further += len(a.Entries)
	}
	first := len(p.pages)
	for len(p.pages) < p.total && len(p.pages)-p.got < maxWindow && q.further < maxFurther {
		p.pages = append(p.pages, nil)
	}
	if p.got < len(p.pages) {
		g.request(q, from, p, first, now)
		return
	}
	q.pulled = append(q.pulled, p)
	delete(q.flight, from)
	g.advance(q, now)
}

// answerSelf takes in what this node's own agent answered.
func (g *Gossip) answerSelf(q *query, d cluster.Document, now time.Time) {
	self := g.roster.Self()
	p := q.flight[self]
	if p == nil {
		g.count.drop(dropUnasked)
		return
	}
	q.own = append(q.own, cluster.Answer{Member: p.member, Document: d})
	delete(q.flight, self)
	g.advance(q, now)
}

// queriesDue asks again, and gives members up that do not answer.
func (g *Gossip) queriesDue(now time.Time) time.Time {
	next := g.queries.shelf.expire(now)
	for _, q := range g.queries.open {
		lost := false
		for n, p := range q.flight {
			if !p.next.After(now) {
				p.tries++
				if p.tries == len(queryPauses) || n.Member != p.id || !n.Alive {
					q.missing = append(q.missing, p.member)
					delete(q.flight, n)
					lost = true
					continue
				}
				g.request(q, n, p, 0, now)
			}
			next = earliest(next, p.next)
		}
		if lost {
			g.advance(q, now)
			for _, p := range q.flight {
				next = earliest(next, p.next)
			}
		}
	}
	return next
}
