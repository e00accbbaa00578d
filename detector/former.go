package detector

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dupip/dupip/internal/schedule"
)

// MaxFormer is how many holders of an address that are gone a node remembers, and a story has.
const MaxFormer = 8

// former is a holder that is gone. LastSeen is when that was, as far as is known.
type former struct {
	Binding
	here bool // it was on this node, also before the node's last boot, and counted
	ends int  // how often in a row it was withdrawn on this node, each time less than bindingTTL after the last
}

// A holder that has ended flaps times in a row comes and goes.
const flaps = 3

// formerOf returns the index of a holder that is gone, -1 if it is not remembered.
func (e *entry) formerOf(id HolderID) int {
	return slices.IndexFunc(e.former, func(f former) bool { return f.Holder.ID == id })
}

// addFormer remembers a holder that is gone. More than the last ones stay while there are notes of them, for their names.
func (e *entry) addFormer(last former) {
	last.Unreachable, last.Gone = false, false
	if i := e.formerOf(last.Holder.ID); i >= 0 { // it was gone before, and came back
		last.FirstSeen = schedule.Earlier(last.FirstSeen, e.former[i].FirstSeen)
		last.here = last.here || e.former[i].here
		if last.LastSeen.Sub(e.former[i].LastSeen) < bindingTTL {
			last.ends += e.former[i].ends
		}
		e.former = slices.Delete(e.former, i, i+1)
	}
	e.former = append(e.former, last)
	more := -MaxFormer
	for i := range e.former {
		if e.former[i].here {
			more++
		}
	}
	for i := range e.former {
		if e.former[i].here && more > 0 {
			e.former[i].here = false
			more--
		}
	}
	e.former = slices.DeleteFunc(e.former, func(f former) bool {
		return !f.here && !slices.ContainsFunc(e.notes, func(n note) bool { return n.holder == f.Holder.ID })
	})
}

// flapping says which holders come and go, as a clause for people after another one; empty if none does. Such a holder is suspected each time
// that it is there with another one, and confirmed if both are there for long enough.
func (e *entry) flapping() (text string) {
	for _, f := range e.former {
		if f.ends >= flaps {
			text += fmt.Sprintf("; %s comes and goes, %d times so far", f.Holder, f.ends)
		}
	}
	return text
}

// allFormer returns the last holders on this node of the last MaxHistory keys that lost one, the last one last.
func (d *Detector) allFormer() (list []Binding) {
	for _, e := range d.entries {
		for _, f := range e.former {
			if f.here {
				list = append(list, f.Binding)
			}
		}
	}
	slices.SortFunc(list, func(a, b Binding) int {
		return cmp.Or(b.LastSeen.Compare(a.LastSeen), a.Key.Compare(b.Key), CompareAge(b, a))
	})
	keys := make(map[Key]bool)
	list = slices.DeleteFunc(list, func(b Binding) bool {
		if len(keys) < d.opts.MaxHistory {
			keys[b.Key] = true
		}
		return !keys[b.Key]
	})
	slices.Reverse(list)
	return list
}
