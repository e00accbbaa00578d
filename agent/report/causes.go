package report

import (
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// causes are what this node's books said of confirmed conflicts, at the first reading that began when there were two holders: later they
// say something else. It belongs to the goroutine that owns the parts.
type causes struct {
	awaited map[string]detector.Conflict // by id: the books were not read since then
	said    map[string][]document.Book   // by id
}

// cause follows a conflict.
func (r *Report) cause(e detector.Event) {
	switch {
	case e.Conflict.State != detector.Confirmed:
		delete(r.causes.awaited, e.Conflict.ID)
	case e.Kind == detector.EventConfirmed && r.causes.said[e.Conflict.ID] == nil:
		r.causes.awaited[e.Conflict.ID] = e.Conflict
		r.ReadBooks()
	}
}

// ReadBooks keeps what the last reading of the books says of conflicts that had two holders when it began, and reports whether there are
// any. Call it after each reading, in the goroutine that owns the parts.
func (r *Report) ReadBooks() (kept bool) {
	read := r.Books.Last().At
	for id, c := range r.causes.awaited {
		if read.After(c.SecondSeen) {
			said := r.books(c.Key.IP)
			document.Clean(&said, 0, time.Time{})
			r.causes.said[id] = said
			delete(r.causes.awaited, id)
			kept = true
		}
	}
	return kept
}

// BooksOf returns what the books said of these conflicts, and forgets what they said of others. Call it in the goroutine that owns the
// parts.
func (r *Report) BooksOf(s detector.Snapshot) map[string][]document.Book {
	said := make(map[string][]document.Book)
	for _, list := range [][]detector.Conflict{s.Open, s.History} {
		for _, c := range list {
			if books := r.causes.said[c.ID]; books != nil {
				said[c.ID] = books
			}
		}
	}
	r.causes.said = said
	return maps.Clone(said)
}

// RestoreBooks restores what an earlier agent has kept. Call it before the agent runs.
func (r *Report) RestoreBooks(said map[string][]document.Book) {
	if said != nil {
		r.causes.said = said
	}
}

// conflict returns the document of a conflict with what the books said.
func (r *Report) conflict(c detector.Conflict) document.Conflict {
	doc := document.NewConflict(c)
	doc.Books = named(r.causes.said[c.ID], doc.Holders)
	return doc
}

// named returns books with the pods of reservations: those of holders may not have been known when the books were read.
func named(said []document.Book, holders []document.Binding) []document.Book {
	said = slices.Clone(said)
	for i, b := range said {
		if b.Reservation == nil || b.Reservation.Pod != nil || b.Reservation.Sandbox == "" {
			continue
		}
		for _, h := range holders {
			if p := h.Pod; p != nil && p.Sandbox == b.Reservation.Sandbox {
				of := *b.Reservation // the other one is read by others
				of.Pod = &document.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
				said[i].Reservation = &of
			}
		}
	}
	return said
}
