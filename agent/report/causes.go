package report

import (
	"maps"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// causes are what this node's books said of conflicts when they were confirmed, because they say something else when it is over. It
// belongs to the goroutine that owns the parts.
type causes struct {
	awaited map[string]detector.Conflict // by id: confirmed, but the books were not read since
	said    map[string][]document.Book   // by id
}

// update follows a conflict.
func (c *causes) update(e detector.Event) {
	switch {
	case e.Conflict.State != detector.Confirmed:
		delete(c.awaited, e.Conflict.ID)
	case e.Kind == detector.EventConfirmed && c.said[e.Conflict.ID] == nil:
		c.awaited[e.Conflict.ID] = e.Conflict
	}
}

// ReadBooks keeps what the books say of the conflicts that were confirmed before they were read. Call it in the goroutine that owns
// the parts.
func (r *Report) ReadBooks() {
	read := r.Books.Last().At
	for id, c := range r.causes.awaited {
		if read.After(c.ConfirmedAt) {
			said := r.books(c.Key.IP)
			document.Clean(&said, 0, time.Time{})
			r.causes.said[id] = said
			delete(r.causes.awaited, id)
		}
	}
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
	doc.Books = r.causes.said[c.ID]
	return doc
}
