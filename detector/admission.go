package detector

import (
	"cmp"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// checkDelay is how long the check of a confirmed conflict leaves room for others. So it waits for suspicions, but not without end.
const checkDelay = time.Minute

// followTime is how long a node with the higher ID of two waits until the other one asks, before it begins a round itself: at once they would
// begin those of different addresses, and have no room for each other's.
const followTime = 50 * time.Millisecond

// admission decides which conflict begins a round next: one whose probes the budget has, those of both rounds if it is the first. The others
// wait. The nodes that they are with have turns, so do the pairs of holders of one node; of a pair, the conflict that has waited for longest is
// next, one that the other node asks about before others. It must not know what a round is for.
type admission struct {
	nodes  map[string]*lanes
	turns  schedule.Schedule[*lanes]
	served uint64
	paused time.Time // nobody has a turn before
}

// maxAsked limits the addresses about which another node is being asked. So a node that takes long to reply is asked less often.
const maxAsked = 1024

// queues are two: that of checks of confirmed conflicts gets what the other one leaves.
type queues struct {
	rounds, checks admission
	asked          map[string]int // how many addresses other nodes are asked about
}

func newQueues() queues {
	return queues{admission{nodes: make(map[string]*lanes)}, admission{nodes: make(map[string]*lanes)}, make(map[string]int)}
}

// count notes about which other node the conflict of an address is asked, if that is so.
func (q *queues) count(e *entry) {
	node := ""
	for _, b := range e.bindings {
		if c := b.check; b.remote && c != nil && c.phase == probing && (node == "" || b.holder.ID.Node < node) {
			node = b.holder.ID.Node
		}
	}
	if node == e.asked {
		return
	}
	was := e.asked
	e.asked = node
	for node, n := range map[string]int{was: -1, node: 1} {
		if node == "" {
			continue
		}
		if q.asked[node] += n; q.asked[node] == 0 {
			delete(q.asked, node)
		}
		for _, a := range [...]*admission{&q.rounds, &q.checks} {
			if p := a.nodes[node]; p != nil {
				p.full = q.asked[node] >= maxAsked
				a.planNode(p)
			}
		}
	}
}

// lanes are those with one other node, or of this one's own holders alone.
type lanes struct {
	schedule.Place
	in   *admission
	node string
	// follows: that node has the lower ID. full: it is asked about as many addresses as may be.
	follows, full bool
	all           map[laneID]*lane
	turns         schedule.Schedule[*lane]
	served        uint64    // the number of the last turn
	last          time.Time // turn, or when the lanes were there first
	turn          time.Time // when the next one may be
}

// laneID names two holders, that with the lower ID first.
type laneID struct{ a, b HolderID }

// lane has the conflicts of two holders that wait.
type lane struct {
	schedule.Place
	id      laneID
	of      *lanes
	waiting schedule.Schedule[*ticket]
	served  uint64    // as of lanes
	last    time.Time // turn, or when the lane was there first
	paused  time.Time // no turn before
	turn    time.Time // when the next one may be
}

// ticket is the place of a conflict that waits for its next round.
type ticket struct {
	schedule.Place
	entry *entry
	lane  *lane
	check bool // it is for a check of a confirmed conflict
	asked bool // the other node asks
	since time.Time
}

// Before implements [schedule.Element].
func (p *lanes) Before(o *lanes) bool {
	return cmp.Or(p.turn.Compare(o.turn), cmp.Compare(p.served, o.served), cmp.Compare(p.node, o.node)) < 0
}

// Before implements [schedule.Element].
func (p *lane) Before(o *lane) bool {
	return cmp.Or(p.turn.Compare(o.turn), cmp.Compare(p.served, o.served), p.id.a.Compare(o.id.a), p.id.b.Compare(o.id.b)) < 0
}

// Before implements [schedule.Element].
func (t *ticket) Before(o *ticket) bool {
	if t.asked != o.asked {
		return t.asked
	}
	return cmp.Or(t.since.Compare(o.since), t.entry.key.Compare(o.entry.key)) < 0
}

// yields reports whether the round is only a check, and has not waited for long.
func (t *ticket) yields(now time.Time) bool {
	return t.check && !t.asked && now.Sub(t.since) < checkDelay
}

// laneOf returns the holders that a conflict is counted with, and the other node of these.
func laneOf(e *entry, self string) (id laneID, node string) {
	var local, other *binding
	for _, b := range e.bindings {
		switch {
		case !b.counts():
		case b.remote && (other == nil || !other.remote || b.holder.ID.Compare(other.holder.ID) < 0):
			other = b
		case !b.remote && local == nil:
			local = b
		case !b.remote && other == nil:
			other = b
		}
	}
	node = self
	if local != nil {
		id.a = local.holder.ID
	}
	if other != nil {
		id.b, node = other.holder.ID, other.holder.ID.Node
	}
	if id.b.Compare(id.a) < 0 {
		id.a, id.b = id.b, id.a
	}
	return id, node
}

// wait has a conflict wait for its turn. One that waits already keeps its place, but for a check that became more than that.
func (q *queues) wait(e *entry, self string, check, asked bool, now time.Time) {
	a := &q.rounds
	switch t := e.ticket; {
	case t != nil && (check || t.lane.of.in == a && (!asked || t.asked)):
		return
	case t != nil && t.lane.of.in == a:
		t.asked = true
		a.place(t)
		return
	case t != nil:
		check = asked && t.check // otherwise a holder has come
		leave(e)
	case check && !asked:
		a = &q.checks
	}
	id, node := laneOf(e, self)
	p := a.nodes[node]
	if p == nil {
		p = &lanes{in: a, full: q.asked[node] >= maxAsked, node: node, follows: node < self, all: make(map[laneID]*lane), last: now}
		a.nodes[node] = p
	}
	w := p.all[id]
	if w == nil {
		w = &lane{id: id, of: p, last: now}
		p.all[id] = w
	}
	e.ticket = &ticket{entry: e, lane: w, check: check, asked: asked, since: now}
	a.place(e.ticket)
}

// place sets the place of a ticket, and with it those of its lane and of the lanes of its node.
func (a *admission) place(t *ticket) {
	t.lane.waiting.Set(t)
	a.plan(t.lane)
}

func (a *admission) plan(w *lane) {
	p := w.of
	if first := w.waiting.First(); first != nil {
		if w.turn = w.last; first.asked {
			w.turn = time.Time{}
		} else if p.follows {
			w.turn = schedule.Later(w.turn, first.since.Add(followTime))
		}
		w.turn = schedule.Later(w.turn, w.paused)
		p.turns.Set(w)
	} else {
		p.turns.Remove(w)
		delete(p.all, w.id)
	}
	a.planNode(p)
}

func (a *admission) planNode(p *lanes) {
	first := p.turns.First()
	switch {
	case first == nil:
		a.turns.Remove(p)
		delete(a.nodes, p.node)
	case p.full:
		a.turns.Remove(p)
	default:
		p.turn = schedule.Later(p.last, first.turn)
		a.turns.Set(p)
	}
}

// leave ends the waiting of a conflict.
func leave(e *entry) {
	if t := e.ticket; t != nil {
		e.ticket = nil
		t.lane.waiting.Remove(t)
		t.lane.of.in.plan(t.lane)
	}
}

// next returns when somebody may have a turn, zero for never.
func (a *admission) next() time.Time {
	if p := a.turns.First(); p != nil {
		return schedule.Later(p.turn, a.paused)
	}
	return time.Time{}
}

// first returns the conflict whose turn it is, nil if nobody has one now.
func (a *admission) first(now time.Time) *ticket {
	if at := a.next(); at.IsZero() || at.After(now) {
		return nil
	}
	return a.turns.First().turns.First().waiting.First()
}

// postpone ends a turn for which the budget had no room: the lane waits until then, or everybody does.
func (a *admission) postpone(t *ticket, until time.Time, all bool) {
	if all {
		a.paused = until
		return
	}
	t.lane.paused = until
	a.plan(t.lane)
}

// serve ends a turn with a round.
func (a *admission) serve(t *ticket, now time.Time) {
	a.served++
	w := t.lane
	w.last, w.served, w.of.last, w.of.served = now, a.served, now, a.served
	leave(t.entry)
}
