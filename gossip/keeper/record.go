package keeper

import (
	"slices"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/roster"
)

func (t *Table) sender(n *roster.Node) *sender {
	s := t.senders[n]
	if s == nil {
		s = &sender{
			node: n, records: make(map[*record]struct{}),
			accept: rate.NewLimiter(acceptRate, acceptBurst), notify: rate.NewLimiter(notifyRate, notifyBurst),
		}
		t.senders[n] = s
	}
	return s
}

// find returns the record of a holder, or nil.
func (e *entry) find(s *sender, id detector.HolderID) *record {
	if e == nil {
		return nil
	}
	for _, r := range e.records {
		if r.sender == s && r.binding.Holder.ID == id {
			return r
		}
	}
	return nil
}

// drop forgets a record, and its key with the last one.
func (t *Table) drop(r *record) {
	t.queueOf(r).remove(r)
	e := r.entry
	e.records = slices.DeleteFunc(e.records, func(o *record) bool { return o == r })
	if !r.gone {
		e.live--
	}
	if len(e.records) == 0 {
		delete(t.entries, e.key)
	}
	delete(r.sender.records, r)
}

// queue has records in the order in which they expire. They live equally long, so that a
// refreshed one goes to the end.
type queue struct {
	first, last *record
	len         int
}

func (t *Table) queueOf(r *record) *queue {
	if r.gone {
		return &t.gone
	}
	return &t.leases
}

func (q *queue) push(r *record) {
	r.prev, r.next = q.last, nil
	if q.last != nil {
		q.last.next = r
	} else {
		q.first = r
	}
	q.last = r
	q.len++
}

// remove takes a record out, if it is in.
func (q *queue) remove(r *record) {
	if r.prev == nil && q.first != r {
		return
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		q.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		q.last = r.prev
	}
	r.prev, r.next = nil, nil
	q.len--
}
