package detector

import "slices"

// maxDrills is how many drills the history has: anybody may make them, and they must not replace conflicts.
const maxDrills = 20

// addToHistory adds a resolved conflict to the history, which may drop the oldest one.
func (d *Detector) addToHistory(e *entry, c Conflict) {
	d.history = append(d.history, c.clone())
	e.kept++
	d.trimHistory()
}

// trimHistory drops the oldest drills beyond maxDrills, and the oldest of all beyond MaxHistory.
func (d *Detector) trimHistory() {
	drills := -maxDrills
	for i := range d.history {
		if d.history[i].IsDrill() {
			drills++
		}
	}
	others := len(d.history) - max(drills, 0) - d.opts.MaxHistory
	d.history = slices.DeleteFunc(d.history, func(c Conflict) bool {
		switch {
		case drills > 0 && c.IsDrill():
			drills--
		case others > 0:
			others--
		default:
			return false
		}
		e := d.entries[c.Key]
		e.kept--
		if len(e.bindings) == 0 && e.conflict == nil {
			d.retire(e)
		}
		return true
	})
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
