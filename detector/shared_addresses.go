package detector

import (
	"maps"
	"slices"
	"time"
)

const declaredShared = "declared shared"

// SetShared declares which keys may have many holders (anycast and virtual addresses). Their
// bindings are kept and shown, but raise no suspicion. An open conflict of such a key ends at once. A
// key that is not shared any more is suspected at once if it has two holders. shared must not call
// the Detector, and its results must not change until the next SetShared; nil declares none.
func (d *Detector) SetShared(shared func(Key) bool, now time.Time) (fx Effects) {
	d.shared = shared
	for _, key := range slices.SortedFunc(maps.Keys(d.entries), Key.Compare) {
		e := d.entries[key]
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
				d.noteEnd(b)
			}
			d.noteChange(b)
		}
		d.endShared(e, now, &fx)
		d.update(e, now, &fx)
	}
	return fx
}

// endShared ends an open conflict of a shared key.
func (d *Detector) endShared(e *entry, now time.Time, fx *Effects) {
	if e.conflict != nil && e.shared {
		d.end(e, declaredShared, now, fx)
		e.faded = "" // the verdict already says that the address is shared
	}
}

// countSuppressed counts each reason for which no suspicion is raised when it begins to apply.
func (d *Detector) countSuppressed(e *entry) {
	var counting, pods int
	for _, b := range e.bindings {
		if b.counts() {
			counting++
			if b.evidence != Host {
				pods++
			}
		}
	}
	reason := ""
	switch two := counting >= 2 && pods > 0; {
	case two && e.shared:
		reason = suppressedShared
	case !two && e.conflict == nil && counting > 0 && counting < len(e.bindings):
		reason = suppressedForwarded
	}
	if reason != "" && reason != e.suppressed {
		d.counts.Suppressed[reason]++
	}
	e.suppressed = reason
}

// SetLimits changes the limits of the same names in [Options]; zero or negative is the default. It
// shortens the history at once. Bindings that exceed a lower limit stay until new ones replace them.
func (d *Detector) SetLimits(maxBindings, maxPerInterface, maxHistory int) {
	d.opts.MaxBindings, d.opts.MaxPerInterface, d.opts.MaxHistory = maxBindings, maxPerInterface, maxHistory
	d.opts = d.opts.withDefaults()
	d.trimHistory()
	d.trimIdle()
}
