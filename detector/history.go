package detector

import "slices"

// past is one resolved conflict.
type past struct {
	entry    *entry
	conflict Conflict
}

// remember adds a resolved conflict to the history, which may drop the oldest one.
func (d *Detector) remember(e *entry, c Conflict) {
	c.Holders = slices.Clone(c.Holders)
	d.history = append(d.history, past{e, c})
	e.kept++
	d.trimHistory()
}

// trimHistory drops the oldest resolved conflicts beyond MaxHistory.
func (d *Detector) trimHistory() {
	n := max(len(d.history)-d.opts.MaxHistory, 0)
	for _, p := range d.history[:n] {
		p.entry.kept--
		if len(p.entry.bindings) == 0 && p.entry.conflict == nil {
			d.retire(p.entry)
		}
	}
	d.history = slices.Delete(d.history, 0, n)
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
