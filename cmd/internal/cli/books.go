package cli

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// bookText says which addresses a book covers, and how many of them it has reserved.
func bookText(b document.BookStatus) string {
	text := fmt.Sprintf("%s, network %s, ", b.Kind, b.CNINetwork)
	if b.Error != "" {
		return text + "problem: " + b.Error
	}
	covered := "no known range"
	if len(b.Ranges) > 0 {
		covered = strings.Join(b.Ranges, " and ")
	}
	text = fmt.Sprintf("%s%s reserved of %s", text, Addresses(b.Reserved), covered)
	if b.LeftPercent != nil {
		text += fmt.Sprintf(", %.0f%% left", math.Floor(*b.LeftPercent))
	}
	return text
}

// Books prints what the books of the nodes say of an address.
func (p *Printer) Books(e document.Explanation) {
	lines := make(map[string][]string) // by node
	for _, story := range e.Stories {
		for _, b := range story.Bindings {
			if b.Given != detector.GivenUnknown {
				lines[b.NodeID()] = append(lines[b.NodeID()], Who(b)+" "+GivenText(b))
			}
		}
	}
	for _, b := range e.Books {
		lines[b.NodeID()] = append(lines[b.NodeID()], b.Kind+", network "+cmp.Or(b.CNINetwork, "unknown")+": "+reservationText(b))
	}
	names := merge.Names(slices.Collect(maps.Keys(lines)))
	for _, id := range slices.Sorted(maps.Keys(lines)) {
		p.printf("\nBooks of node %s:\n", p.clip(names[id], besideNode+6))
		for _, line := range lines[id] {
			p.wrapped(4, "  "+line)
		}
	}
}

func (p *Printer) causes(e document.Explanation) {
	if causes := Causes(e); len(causes) > 0 {
		p.println("\nBecause:")
		for _, cause := range causes {
			p.wrapped(4, "  "+cause)
		}
	}
}

// GivenText says whether a holder was given its address; empty if that is not known.
func GivenText(b document.Binding) string {
	switch b.Given {
	case detector.GivenUnknown:
		return ""
	case detector.GivenYes:
		return "was given the address by a network plugin"
	}
	return "was not given the address by any network plugin"
}

func reservationText(b document.Book) string {
	switch r := b.Reservation; {
	case b.Error != "":
		return "problem: " + b.Error
	case r != nil:
		return fmt.Sprintf("reserved for %s since %s", ReservedFor(r), r.Since.Local().Format("2006-01-02 15:04:05"))
	}
	return "not reserved, although it gives out " + b.Range
}
