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
	if e.Conflict.State == detector.Confirmed {
		r.follow(0)
	}
	switch {
	case e.Conflict.State != detector.Confirmed:
		delete(r.causes.awaited, e.Conflict.ID)
	case e.Kind == detector.EventConfirmed && r.causes.said[e.Conflict.ID] == nil:
		r.causes.awaited[e.Conflict.ID] = e.Conflict
		r.ReadBooks()
	default:
		if _, awaited := r.causes.awaited[e.Conflict.ID]; awaited {
			r.causes.awaited[e.Conflict.ID] = e.Conflict
		}
	}
}

// ReadBooks keeps what the last reading of the books says of conflicts that had two holders when it began, and reports whether there are
// any. Call it after each reading, in the goroutine that owns the parts.
func (r *Report) ReadBooks() (kept bool) {
	read := r.Books.Last().At
	for id, c := range r.causes.awaited {
		if read.After(c.SecondSeen) {
			said := r.recentView().books(c.Key.IP)
			document.Clean(&said, 0, time.Time{})
			r.causes.said[id] = said
			delete(r.causes.awaited, id)
			r.tellFacts(c)
			kept = true
		}
	}
	return kept
}

// Kept returns what is kept of these conflicts: what the books said, and the facts of holders. It forgets that of others. Call it in the
// goroutine that owns the parts.
func (r *Report) Kept(s detector.Snapshot) (map[string][]document.Book, map[string]map[detector.HolderID]*document.Facts) {
	said, known := make(map[string][]document.Book), make(map[string]map[detector.HolderID]*document.Facts)
	for _, list := range [][]detector.Conflict{s.Open, s.History} {
		for _, c := range list {
			if books := r.causes.said[c.ID]; books != nil {
				said[c.ID] = books
			}
			if facts := r.facts.known[c.ID]; facts != nil {
				known[c.ID] = facts
			}
		}
	}
	r.causes.said, r.facts.known = said, known
	return maps.Clone(said), maps.Clone(known)
}

// Restore restores what an earlier agent has kept. Call it before the agent runs.
func (r *Report) Restore(said map[string][]document.Book, known map[string]map[detector.HolderID]*document.Facts) {
	maps.Copy(r.causes.said, said)
	maps.Copy(r.facts.known, known)
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
