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
			node: n, records: make(map[*record]struct{}), accept: rate.NewLimiter(acceptRate, acceptBurst),
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

// add adds a record to a key, which is there from then on.
func (t *Table) add(e *entry, s *sender, gone bool) *record {
	r := &record{entry: e, sender: s, gone: gone}
	e.records = append(e.records, r)
	s.records[r] = struct{}{}
	t.entries[e.key] = e
	if gone {
		r.element = t.gone.PushBack(r)
	} else {
		r.element = t.leases.PushBack(r)
		e.live++
		s.leases++
	}
	return r
}

// drop forgets a record, and its key with the last one.
func (t *Table) drop(r *record) {
	e := r.entry
	e.records = slices.DeleteFunc(e.records, func(o *record) bool { return o == r })
	if len(e.records) == 0 {
		delete(t.entries, e.key)
	}
	delete(r.sender.records, r)
	if r.gone {
		t.gone.Remove(r.element)
	} else {
		t.leases.Remove(r.element)
		e.live--
		r.sender.leases--
	}
}
