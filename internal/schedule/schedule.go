// Package schedule has elements in the order in which something is due for them.
package schedule

import (
	"container/heap"
	"time"
)

// Element is a pointer to what is in one schedule at most, a struct that embeds a [Place].
type Element[E any] interface {
	// Before reports whether the element comes before another one.
	Before(E) bool
	place() *Place
}

// Place is where an element is in its schedule: its index + 1, 0 while it is in none.
type Place int

func (p *Place) place() *Place { return p }

// Schedule is a heap of elements. It is not safe for concurrent use.
type Schedule[E Element[E]] struct{ elements elements[E] }

// Len is the number of elements.
func (s *Schedule[E]) Len() int { return len(s.elements) }

// First returns the first element, the zero value if there is none.
func (s *Schedule[E]) First() (first E) {
	if len(s.elements) > 0 {
		first = s.elements[0]
	}
	return first
}

// Set adds an element, or gives one whose order has changed its new place.
func (s *Schedule[E]) Set(e E) {
	if place := *e.place(); place != 0 {
		heap.Fix(&s.elements, int(place)-1)
	} else {
		heap.Push(&s.elements, e)
	}
}

// Remove removes an element if it is there.
func (s *Schedule[E]) Remove(e E) {
	if place := *e.place(); place != 0 {
		heap.Remove(&s.elements, int(place)-1)
	}
}

// elements implements [heap.Interface].
type elements[E Element[E]] []E

func (h elements[E]) Len() int           { return len(h) }
func (h elements[E]) Less(i, j int) bool { return h[i].Before(h[j]) }

func (h elements[E]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].place(), *h[j].place() = Place(i+1), Place(j+1)
}

func (h *elements[E]) Push(x any) {
	e := x.(E)
	*h = append(*h, e)
	*e.place() = Place(len(*h))
}

func (h *elements[E]) Pop() any {
	var none E
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = none, (*h)[:last]
	*e.place() = 0
	return e
}

// Earlier returns the earlier of two times. Zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times. Zero is before all others.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
