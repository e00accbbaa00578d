package detector

import "slices"

// past is one resolved conflict.
type past struct {
	entry    *entry
	conflict Conflict
}

// remember adds a resolved conflict to the history; the oldest one makes room.
func (d *Detector) remember(e *entry, c Conflict) {
	c.Holders = slices.Clone(c.Holders)
	d.history = append(d.history, past{e, c})
	e.kept++
	if len(d.history) <= d.opts.MaxHistory {
		return
	}
	oldest := d.history[0].entry
	d.history = slices.Delete(d.history, 0, 1)
	oldest.kept--
	if len(oldest.bindings) == 0 && oldest.conflict == nil {
		d.retire(oldest)
	}
}

// lastResolved returns the last resolved conflict of an entry, or nil.
func (d *Detector) lastResolved(e *entry) *Conflict {
	if e.kept == 0 {
		return nil
	}
	for _, p := range slices.Backward(d.history) {
		if p.entry == e {
			c := p.conflict.clone()
			return &c
		}
	}
	return nil
}

func (c Conflict) clone() Conflict {
	c.Holders = slices.Clone(c.Holders)
	return c
}
