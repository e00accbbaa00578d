package detector

import (
	"maps"
	"slices"
	"time"
)

// SetShared declares which keys may have many holders (anycast and virtual addresses). Their
// bindings are kept and shown, but raise no suspicion. An open conflict of such a key ends at once. A
// key that is not shared any more is suspected at once if it has two holders. shared must not call
// the Detector, and its results must not change until the next SetShared; nil declares none.
func (d *Detector) SetShared(shared func(Key) bool, now time.Time) Effects {
	d.table.shared = shared
	for _, key := range slices.SortedFunc(maps.Keys(d.table.entries), Key.Compare) {
		e := d.table.entries[key]
		if e == nil {
			continue // it was forgotten when the conflict of another key ended
		}
		was := e.shared
		e.shared = shared != nil && shared(key)
		if e.shared == was {
			continue
		}
		for _, b := range e.bindings {
			if e.shared {
				d.table.withdraw(b)
			}
			d.table.note(b)
		}
		d.conflicts.endShared(e, now)
		d.update(e, now)
	}
	return d.effects()
}

// SetLimits changes the limits of the same names in [Options]; zero or negative is the default. It
// shortens the history at once. Bindings that exceed a lower limit stay until new ones replace them.
func (d *Detector) SetLimits(maxBindings, maxPerInterface, maxHistory int) {
	o := &d.table.opts
	o.MaxBindings, o.MaxPerInterface, o.MaxHistory = maxBindings, maxPerInterface, maxHistory
	*o = o.withDefaults()
	d.conflicts.trim()
	d.table.trimIdle()
}
