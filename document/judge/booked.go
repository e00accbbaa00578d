package judge

import (
	"slices"

	"github.com/dupip/dupip/document"
)

// booked decides by what only a reporter knows, where the facts of the agents leave it open: if the book of the whole cluster that the address
// is of has it reserved for one of the holders, whose pod the API server has, the others go. The address of a successor is another one. Book
// and API server must agree, so that one of them alone decides nothing else.
func (j *judging) booked(made *document.Judgement) (cause string) {
	open := j.open()
	book := j.clusterBook()
	if book == nil || book.Reservation == nil || j.has(open, func(b document.Binding) bool { return isHost(b) || !isGiven(b) }) {
		return ""
	}
	stays := slices.IndexFunc(open, func(n int) bool {
		b := j.c.Holders[n]
		return j.owns(book.Reservation, n) && listing(b).Pod == document.PodListed && runs(b)
	})
	if stays < 0 {
		return ""
	}
	owner := open[stays : stays+1]
	goes := slices.DeleteFunc(slices.Clone(open), func(n int) bool { return n == owner[0] })
	for _, n := range goes {
		if !j.told(n) {
			return ""
		}
	}
	for _, n := range goes {
		b := j.c.Holders[n]
		switch {
		case listing(b).Pod != document.PodUnlisted:
			j.removeBy(n, owner, document.ReasonNotReserved)
			cause = document.CauseLost
		case isOfDeletedNode(b):
			j.removeBy(n, owner, document.ReasonUnlisted)
			cause, made.Nodes = document.CauseDeleted, append(made.Nodes, b.NodeID())
		default:
			j.removeBy(n, owner, document.ReasonUnlisted)
			cause = document.CauseUnlisted
		}
	}
	return cause
}

// clusterBook is the book of the whole cluster that the address is of; nil if there is none, or the book of a holder's node has it, too.
func (j *judging) clusterBook() (found *document.Book) {
	for i, book := range j.c.Books {
		switch {
		case book.Node != "":
			if slices.ContainsFunc(j.c.Holders, func(b document.Binding) bool { return b.NodeID() == book.NodeID() }) {
				return nil
			}
		case found != nil || book.Error != "":
			return nil
		default:
			found = &j.c.Books[i]
		}
	}
	return found
}

// earlierNode returns the nodes of the holders, if the book of one of them belongs to an earlier node of its name: another node may have got
// its addresses meanwhile.
func (j *judging) earlierNode(left []int) []string {
	ids := j.nodes(left, func(document.Binding) bool { return true })
	isEarlier := func(b document.Binding) bool {
		return slices.ContainsFunc(j.c.Books, func(book document.Book) bool {
			return book.Node == "" && book.OwnerUID != "" && book.Reservation != nil && book.Reservation.Node == b.Node
		})
	}
	if len(ids) < 2 || !j.has(left, isEarlier) {
		return nil
	}
	return ids
}

// owns reports whether a reservation of a book of the whole cluster is a holder's: by its sandbox, or if that is not known, by the pod's name,
// which no other holder may have.
func (j *judging) owns(r *document.Reservation, n int) bool {
	b := j.c.Holders[n]
	if r.Sandbox != "" && pod(b).Sandbox != "" {
		return isFor(r, b)
	}
	return r.Pod != nil && r.Pod.Name == pod(b).Name && r.Pod.Namespace == pod(b).Namespace && !b.Pod.IsContainer() &&
		!slices.ContainsFunc(j.c.Holders, func(o document.Binding) bool { return o.ID() != b.ID() && (sameName(o, b) || pod(o).Name == "") })
}

func listing(b document.Binding) document.Listing {
	if b.Listing == nil {
		return document.Listing{}
	}
	return *b.Listing
}

func isOfDeletedNode(b document.Binding) bool { return !listing(b).NodeDeleted.IsZero() }
