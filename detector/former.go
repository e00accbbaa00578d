package detector

import (
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
func (s *story) formerOf(id HolderID) int {
	return slices.IndexFunc(s.former, func(f former) bool { return f.Holder.ID == id })
}

// addFormer remembers a holder that is gone. More than the last ones stay while there are notes of them, for their names.
func (s *story) addFormer(last former) {
	last.Unreachable, last.Gone = false, false
	if i := s.formerOf(last.Holder.ID); i >= 0 { // it was gone before, and came back
		last.FirstSeen = schedule.Earlier(last.FirstSeen, s.former[i].FirstSeen)
		last.here = last.here || s.former[i].here
		if last.LastSeen.Sub(s.former[i].LastSeen) < bindingTTL {
			last.ends += s.former[i].ends
		}
		s.former = slices.Delete(s.former, i, i+1)
	}
	s.former = append(s.former, last)
	more := -MaxFormer
	for i := range s.former {
		if s.former[i].here {
			more++
		}
	}
	for i := range s.former {
		if s.former[i].here && more > 0 {
			s.former[i].here = false
			more--
		}
	}
	s.former = slices.DeleteFunc(s.former, func(f former) bool {
		return !f.here && !slices.ContainsFunc(s.notes, func(n note) bool { return n.holder == f.Holder.ID })
	})
}

// flapping says which holders come and go, as a clause for people after another one; empty if none does. Such a holder is suspected each time
// that it is there with another one, and confirmed if both are there for long enough.
func (s *story) flapping() (text string) {
	for _, f := range s.former {
		if f.ends >= flaps {
			text += fmt.Sprintf("; %s comes and goes, %d times so far", f.Holder, f.ends)
		}
	}
	return text
}
