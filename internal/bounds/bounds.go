// Package bounds counts what this process left out because a bound was reached, where no other counter or text says so.
package bounds

import "sync/atomic"

// Bound counts what one bound left out. It is safe for concurrent use.
type Bound struct {
	reason string
	n      atomic.Uint64
}

var all []*Bound

// New returns the counter of a bound, which is a variable of its package. The reason is how the status and the metrics name it.
func New(reason string) *Bound {
	b := &Bound{reason: reason}
	all = append(all, b)
	return b
}

// Exceeded counts what is left out.
func (b *Bound) Exceeded(n int) { b.n.Add(uint64(n)) }

// Counts returns how much each bound of the program left out so far.
func Counts() map[string]uint64 {
	counts := make(map[string]uint64)
	for _, b := range all {
		counts[b.reason] = b.n.Load()
	}
	return counts
}
