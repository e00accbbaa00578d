package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// bookText says which addresses a book covers, and how many of them it has reserved.
func bookText(b api.BookStatus) string {
	text := fmt.Sprintf("%s, network %s, ", b.Kind, b.Network)
	if b.Error != "" {
		return text + "problem: " + b.Error
	}
	covered := "no known range"
	if len(b.Ranges) > 0 {
		covered = strings.Join(b.Ranges, " and ")
	}
	return fmt.Sprintf("%s%d addresses reserved of %s", text, b.Reserved, covered)
}

// printBooks prints what the books of the node say of an address, and what causes of a conflict follow from that. The books
// of other nodes are theirs to read.
func printBooks(out io.Writer, e api.Explanation) {
	var given, causes []string
	for _, story := range e.Stories {
		open := story.Conflict != nil && story.Conflict.ResolvedAt.IsZero()
		for _, b := range story.Bindings {
			if b.Node != e.Node || b.Given == nil {
				continue
			}
			is := map[bool]string{true: "was given the address by a network plugin", false: "was not given the address by any network plugin"}
			given = append(given, who(b)+" "+is[*b.Given])
			if open {
				causes = append(causes, causesOf(b, e.Books)...)
			}
		}
	}
	if len(given)+len(e.Books) == 0 {
		return
	}
	fmt.Fprintf(out, "\nBooks of node %s:\n", e.Node)
	for _, line := range given {
		wrapped(out, 4, "  "+line)
	}
	for _, b := range e.Books {
		wrapped(out, 4, "  "+b.Kind+", network "+cmp.Or(b.Network, "unknown")+": "+reservationText(b))
	}
	if len(causes) > 0 {
		fmt.Fprintln(out, "\nBecause:")
	}
	for _, cause := range causes {
		wrapped(out, 4, "  "+cause)
	}
}

func reservationText(b api.Book) string {
	switch r := b.Reservation; {
	case b.Error != "":
		return "problem: " + b.Error
	case r != nil:
		return fmt.Sprintf("reserved for %s since %s", reservedFor(r), r.Since.Local().Format("2006-01-02 15:04:05"))
	}
	return "not reserved, although it gives out this range"
}

func reservedFor(r *api.Reservation) string {
	if r.Sandbox == "" {
		return "a pod that is just being made"
	}
	return cmp.Or(podName(r.Pod), "sandbox "+r.Sandbox)
}

// causesOf says why a holder on this node shares the address with others, as far as what was read shows it.
func causesOf(b api.Binding, books []api.Book) (causes []string) {
	if !*b.Given {
		return []string{who(b) + " took the address by hand: CNI's result of its sandbox does not have it."}
	}
	if slices.ContainsFunc(books, func(book api.Book) bool {
		return b.Pod != nil && book.Reservation != nil && book.Reservation.Sandbox == b.Pod.Sandbox
	}) {
		return nil // whatever other books cover the same range
	}
	for _, book := range books {
		name := book.Kind + " (network " + book.Network + ")"
		switch r := book.Reservation; {
		case book.Error != "" || b.Pod == nil || b.Pod.Sandbox == "":
		case r == nil:
			causes = append(causes, fmt.Sprintf("%s lost its reservation: %s has none for the address, and gives it out again.", who(b), name))
		case r.Sandbox != "":
			causes = append(causes, fmt.Sprintf("%s lost its reservation: %s has reserved the address for %s.", who(b), name, reservedFor(r)))
		}
	}
	return causes
}
