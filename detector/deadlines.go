package detector

import "time"

// Before implements [schedule.Element]: by the next deadline and then by key, so that the order of effects is always the
// same.
func (e *entry) Before(o *entry) bool {
	if c := e.at.Compare(o.at); c != 0 {
		return c < 0
	}
	return e.key.Compare(o.key) < 0
}

// schedule sets the next deadline of an entry.
func (d *Detector) schedule(e *entry, at time.Time) {
	if e.Place == 0 || !e.at.Equal(at) {
		e.at = at
		d.due.Set(e)
	}
}
