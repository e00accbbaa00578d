package judge

import (
	"slices"

	"github.com/dupip/dupip/document"
)

// What only a reporter knows decides what the facts of the agents leave open.

// booked removes the holders that a book of the whole cluster does not know, if it has the address reserved for another live one: the address
// of a successor is another one, and nothing frees the other's reservation.
func (j *judging) booked() string {
	for _, book := range j.c.Books {
		if book.Node != "" || book.Error != "" || book.Reservation == nil {
			continue
		}
		open := j.open()
		owners := slices.DeleteFunc(slices.Clone(open), func(n int) bool { return !j.owns(book.Reservation, n) })
		if len(owners) != 1 || !runs(j.c.Holders[owners[0]]) || j.has(open, isHost) {
			continue
		}
		cause := ""
		for _, n := range open {
			b := j.c.Holders[n]
			if n != owners[0] && j.told(n) && isGiven(b) && !j.isReservedAt(b) {
				j.remove(n, document.ReasonNotReserved)
				cause = document.CauseLost
			}
		}
		if cause != "" && len(j.open()) == 1 {
			return cause
		}
	}
	return ""
}

// owns reports whether a reservation of a book of the whole cluster is a holder's: by its sandbox, or if the book does not have that, by the
// pod's name, which no other holder may have.
func (j *judging) owns(r *document.Reservation, n int) bool {
	b := j.c.Holders[n]
	if r.Sandbox != "" && pod(b).Sandbox != "" {
		return isFor(r, b)
	}
	return r.Pod != nil && r.Pod.Name == pod(b).Name && r.Pod.Namespace == pod(b).Namespace &&
		!slices.ContainsFunc(j.c.Holders, func(o document.Binding) bool { return o.ID() != b.ID() && sameName(o, b) })
}

// isReservedAt reports whether a book of a holder's own node has the address reserved for it.
func (j *judging) isReservedAt(b document.Binding) bool {
	return slices.ContainsFunc(j.c.Books, func(book document.Book) bool { return book.NodeID() == b.NodeID() && isFor(book.Reservation, b) })
}

// unlisted removes the pods that the API server does not have, if it has that of another live holder: nobody manages them, and no book keeps
// the address for them. It does not know pods that were made without it, so none may be in the books.
func (j *judging) unlisted(made *document.Judgement) (cause string) {
	open := j.open()
	if j.has(open, isHost) || !j.has(open, func(b document.Binding) bool { return listing(b).Pod == document.PodListed && runs(b) && isGiven(b) }) {
		return ""
	}
	for _, n := range open {
		b := j.c.Holders[n]
		if listing(b).Pod != document.PodUnlisted || !j.told(n) || j.isReservedAt(b) || j.isBooked(n) {
			continue
		}
		j.remove(n, document.ReasonUnlisted)
		if cause == "" {
			cause = document.CauseUnlisted
		}
		if isOfDeletedNode(b) {
			cause = document.CauseDeleted
			made.Nodes = append(made.Nodes, b.NodeID())
		}
	}
	return cause
}

// isBooked reports whether a book of the whole cluster has the address reserved for a holder.
func (j *judging) isBooked(n int) bool {
	return slices.ContainsFunc(j.c.Books, func(book document.Book) bool {
		return book.Node == "" && book.Reservation != nil && j.owns(book.Reservation, n)
	})
}

func listing(b document.Binding) document.Listing {
	if b.Listing == nil {
		return document.Listing{}
	}
	return *b.Listing
}

func isOfDeletedNode(b document.Binding) bool { return !listing(b).NodeDeleted.IsZero() }
