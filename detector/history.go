package detector

import "slices"

// resolved is a conflict in the history.
type resolved struct {
	Conflict
	share *share
}

// share is the part of the history that the conflicts of one kind have.
type share struct {
	kind kind
	size int // greater than 0
}

// kind is what conflicts have in common that share a part of the history: two holders, or that they are drills, which have none.
type kind [2]HolderID

// addToHistory adds a resolved conflict to the history, which may drop another one.
func (d *Detector) addToHistory(e *entry, c Conflict) {
	k := kindOf(&c)
	if d.shares[k] == nil {
		d.shares[k] = &share{kind: k}
	}
	d.shares[k].size++
	d.history = append(d.history, resolved{c.clone(), d.shares[k]})
	e.kept++
	d.trimHistory()
}

// trimHistory drops conflicts beyond MaxHistory.
func (d *Detector) trimHistory() {
	for len(d.history) > d.opts.MaxHistory {
		drop := d.leastMissed()
		e, of := d.entries[d.history[drop].Key], d.history[drop].share
		if of.size--; of.size == 0 {
			delete(d.shares, of.kind)
		}
		d.history = slices.Delete(d.history, drop, drop+1)
		e.kept--
		if len(e.bindings) == 0 && e.conflict == nil {
			d.retire(e)
		}
	}
}

// leastMissed returns the index of the conflict to drop next: the oldest one of the kind that there are most of. Two pods can make any
// number of conflicts, and anybody drills: those of others stay. The last one of a key stays while there are others of the key, because
// it has the number from which the next one is counted.
func (d *Detector) leastMissed() int {
	most, last := 0, -1
	for _, r := range d.history {
		most = max(most, r.share.size)
	}
	for i, r := range d.history {
		if r.share.size < most {
			continue
		}
		ofKey := func(o resolved) bool { return o.Key == r.Key }
		if d.entries[r.Key].kept == 1 || slices.ContainsFunc(d.history[i+1:], ofKey) {
			return i
		}
		if last < 0 {
			last = slices.IndexFunc(d.history, ofKey)
		}
	}
	return last
}

// kindOf returns that of the oldest two holders, in any order.
func kindOf(c *Conflict) kind {
	if c.IsDrill() || len(c.Holders) < 2 {
		return kind{}
	}
	a, b := c.Holders[0].Holder.ID, c.Holders[1].Holder.ID
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	return kind{a, b}
}

// lastResolved returns the last resolved conflict of an entry, or nil.
func (d *Detector) lastResolved(e *entry) *Conflict {
	for _, c := range slices.Backward(d.history) {
		if c.Key == e.key {
			return new(c.clone())
		}
	}
	return nil
}

func (c Conflict) clone() Conflict {
	c.Holders = slices.Clone(c.Holders)
	return c
}
