package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// wipedStore is how many reservations must be missing at once for the store to be called wiped.
const wipedStore = 3

// Causes says why the conflicts of an address came about, as far as the nodes have read it in their books: of a resolved one, when it
// was confirmed.
func Causes(e document.Explanation) (causes []string) {
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(causes, text) {
			causes = append(causes, text)
		}
	}
	for _, story := range e.Stories {
		c := story.Conflict
		if c == nil {
			continue
		}
		holders, books := story.Bindings, e.Books
		if c.State == detector.Resolved {
			holders, books = c.Holders, c.Books
		}
		causesBetweenNodes(*c, books, add)
		for n, b := range holders {
			name := Labels(document.Conflict{Holders: holders})[n]
			switch b.Given {
			case detector.GivenYes:
				causesOf(b, name, books, c.State == detector.Resolved, add)
			case detector.GivenNo:
				add("%s probably took the address by hand: CNI's result of its sandbox does not have it.", name)
			}
		}
	}
	for _, c := range e.Configured {
		if c.Lost {
			add("%s", detectionFailed(c, e))
		}
	}
	return causes
}

// causesBetweenNodes says what of the nodes themselves makes them share an address.
func causesBetweenNodes(c document.Conflict, books []document.Book, add func(string, ...any)) {
	nodes, _ := NodesOf(c.Holders)
	var by, of []string
	for n, b := range c.Holders {
		for m, other := range c.Holders[:n] {
			if b.Node == other.Node && b.BootID != other.BootID {
				add("two machines are called %s: %s and %s. One of them was probably replaced and still runs, or is a clone.", b.Node, nodes[m], nodes[n])
			}
		}
		i := slices.IndexFunc(books, func(book document.Book) bool { return book.Range != "" && book.NodeID() == b.NodeID() })
		if i >= 0 && !slices.Contains(of, nodes[n]) {
			of = append(of, nodes[n])
			by = append(by, fmt.Sprintf("%s %s (%s, network %s)", nodes[n], books[i].Range, books[i].Kind, books[i].CNINetwork))
		}
	}
	if len(by) > 1 {
		number := "two"
		if len(by) > 2 {
			number = strconv.Itoa(len(by))
		}
		add("%s nodes give out addresses of one range: %s. A range must be one node's.", number, Conjoin(by))
	}
}

// causesOf says what the books of its node have against a holder that was given the address. over: that is past.
func causesOf(b document.Binding, name string, books []document.Book, over bool, add func(string, ...any)) {
	if b.Pod == nil || b.Pod.Sandbox == "" || slices.ContainsFunc(books, func(book document.Book) bool {
		return book.NodeID() == b.NodeID() && (book.Error != "" || book.Reservation != nil && book.Reservation.Sandbox == b.Pod.Sandbox)
	}) {
		return // whatever other books cover the same range; and one that cannot be read may have it
	}
	for _, book := range books {
		if book.NodeID() != b.NodeID() {
			continue
		}
		by := book.Kind + " (network " + book.CNINetwork + ")"
		if book.Unreserved >= wipedStore {
			add("the store of %s on node %s was probably wiped: %d addresses of its pods have no reservation.", by, book.Node, book.Unreserved)
		}
		switch r := book.Reservation; {
		case r == nil && over:
			add("%s lost its reservation: %s had none for the address.", name, by)
		case r == nil:
			add("%s lost its reservation: %s has none for the address, and may give it out again; \"dupip audit\" has the command that repairs it.", name, by)
		case r.Sandbox != "":
			add("%s lost its reservation: %s has reserved the address for %s.", name, by, ReservedFor(r))
		}
	}
}

// ReservedFor names who has a reservation.
func ReservedFor(r *document.Reservation) string {
	if r.Sandbox == "" {
		return "a pod that is just being made"
	}
	return cmp.Or(r.Pod.String(), "sandbox "+r.Sandbox)
}
