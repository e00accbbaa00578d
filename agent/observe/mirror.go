package observe

import "time"

// mirrorFor is how long a holder counts as a mirror after it last sent one of our probes back.
const mirrorFor = 5 * time.Minute

// isMirror reports whether the packets of an interface may be packets of others: its holder has lately sent our own
// probes back, there or on another interface, as a port mirror or a bridge in a loop does. It also sends back the packets of
// others, such as answers to our probes.
func (t *Table) isMirror(i *Interface, at time.Time) bool {
	for _, other := range t.interfaces {
		if other.Holder == i.Holder && at.Before(other.mirrored.Add(mirrorFor)) {
			return true
		}
	}
	return false
}
