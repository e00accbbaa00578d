package detector

import "slices"

// addToHistory adds a resolved conflict to the history, which may drop the oldest one.
func (d *Detector) addToHistory(e *entry, c Conflict) {
	d.history = append(d.history, c.clone())
	e.kept++
	d.trimHistory()
}

// trimHistory drops the oldest resolved conflicts beyond MaxHistory.
func (d *Detector) trimHistory() {
	n := max(len(d.history)-d.opts.MaxHistory, 0)
	for _, c := range d.history[:n] {
		e := d.entries[c.Key]
		e.kept--
		if len(e.bindings) == 0 && e.conflict == nil {
			d.retire(e)
		}
	}
	d.history = slices.Delete(d.history, 0, n)
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
