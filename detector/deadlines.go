package detector

import (
	"container/heap"
	"time"
)

// schedule is a heap of entries by their next deadline and then by key, so that the order of
// effects is always the same.
type schedule struct{ entries []*entry }

func (s *schedule) Len() int { return len(s.entries) }

func (s *schedule) Less(i, j int) bool {
	a, b := s.entries[i], s.entries[j]
	if c := a.at.Compare(b.at); c != 0 {
		return c < 0
	}
	return compareKeys(a.key, b.key) < 0
}

func (s *schedule) Swap(i, j int) {
	s.entries[i], s.entries[j] = s.entries[j], s.entries[i]
	s.entries[i].slot, s.entries[j].slot = i+1, j+1
}

// Push is for container/heap only.
func (s *schedule) Push(x any) {
	e := x.(*entry)
	s.entries = append(s.entries, e)
	e.slot = len(s.entries)
}

// Pop is for container/heap only.
func (s *schedule) Pop() any {
	last := len(s.entries) - 1
	e := s.entries[last]
	s.entries[last] = nil
	s.entries = s.entries[:last]
	e.slot = 0
	return e
}

func (s *schedule) first() *entry {
	if len(s.entries) == 0 {
		return nil
	}
	return s.entries[0]
}

func (s *schedule) set(e *entry, at time.Time) {
	if e.slot != 0 && e.at.Equal(at) {
		return
	}
	e.at = at
	if e.slot == 0 {
		heap.Push(s, e)
		return
	}
	heap.Fix(s, e.slot-1)
}

func (s *schedule) remove(e *entry) {
	if e.slot != 0 {
		heap.Remove(s, e.slot-1)
	}
}
