package detector

import "slices"

// addToHistory adds a resolved conflict to the history, which may drop another one.
func (d *Detector) addToHistory(e *entry, c Conflict) {
	d.history = append(d.history, c.clone())
	e.kept++
	d.trimHistory()
}

// trimHistory drops conflicts beyond MaxHistory: each time the oldest one of the kind that there are most of. Two pods can make any
// number of conflicts, and anybody drills: those of others stay.
func (d *Detector) trimHistory() {
	for len(d.history) > d.opts.MaxHistory {
		count := make(map[kind]int)
		for i := range d.history {
			count[kindOf(&d.history[i])]++
		}
		drop := 0
		for i := range d.history {
			if count[kindOf(&d.history[i])] > count[kindOf(&d.history[drop])] {
				drop = i
			}
		}
		e := d.entries[d.history[drop].Key]
		d.history = slices.Delete(d.history, drop, drop+1)
		e.kept--
		if len(e.bindings) == 0 && e.conflict == nil {
			d.retire(e)
		}
	}
}

// kind is what conflicts have in common that share a part of the history: two holders, or that they are drills, which have none.
type kind [2]HolderID

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
