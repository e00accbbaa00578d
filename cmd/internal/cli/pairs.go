package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// maxPairs bounds the lines of pairs.
const maxPairs = 10

// Pairs prints the nodes that share many addresses, or some that the table does not have: if a whole prefix has two holders,
// that is one fault, not hundreds.
func (p *Printer) Pairs(doc document.Conflicts) { p.pairs(doc, maxPairs) }

func (p *Printer) pairs(doc document.Conflicts, most int) {
	var pairs []document.Pair
	for _, pair := range doc.Pairs {
		inTable := func(c document.Conflict) bool { return isBetween(c, pair) }
		if pair.Addresses > document.FewShared || len(pair.Nodes) == 2 && !slices.ContainsFunc(doc.Conflicts, inTable) {
			pairs = append(pairs, pair)
		}
	}
	for _, pair := range pairs[:min(len(pairs), most)] {
		examples := each(pair.Examples, func(a document.Address) string { return InNetwork(a.IP.String(), a.Network) })
		if len(pair.Examples) < pair.Addresses {
			examples = append(examples, "…")
		}
		p.wrapped(2, fmt.Sprintf("%s share %s (%s)",
			strings.Join(pair.Nodes, " and "), Addresses(pair.Addresses), strings.Join(examples, ", ")))
	}
	if more := len(pairs) - most; more > 0 {
		p.printf("%s of nodes share addresses\n", Plural(more, "more pair", "more pairs"))
	}
	if len(pairs) > 0 {
		p.println()
	}
}

// isBetween reports whether a conflict has holders on both nodes of a pair.
func isBetween(c document.Conflict, p document.Pair) bool {
	on := func(node string) bool { // which may include the boot
		return slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.Node == node || merge.FullName(b.NodeID()) == node })
	}
	return on(p.Nodes[0]) && on(p.Nodes[1])
}

// rangesOf returns the pairs of nodes that share more than [document.FewShared] addresses.
func rangesOf(doc document.Conflicts) []document.Pair {
	return slices.DeleteFunc(slices.Clone(doc.Pairs), func(p document.Pair) bool {
		return p.Addresses <= document.FewShared || len(p.Nodes) != 2
	})
}
