package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// maxPairs bounds the lines of pairs.
const maxPairs = 10

// Pairs prints the nodes that share many addresses, or some that the table does not have: if a whole prefix has two holders,
// that is one fault, not hundreds.
func (p *Printer) Pairs(document api.Conflicts) { p.pairs(document, maxPairs) }

func (p *Printer) pairs(document api.Conflicts, most int) {
	var pairs []api.Pair
	for _, pair := range document.Pairs {
		inTable := func(c api.Conflict) bool { return isBetween(c, pair) }
		if pair.Addresses > api.FewShared || len(pair.Nodes) == 2 && !slices.ContainsFunc(document.Conflicts, inTable) {
			pairs = append(pairs, pair)
		}
	}
	for _, pair := range pairs[:min(len(pairs), most)] {
		examples := each(pair.Examples, func(a api.Address) string { return InNetwork(a.IP, a.Network) })
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
func isBetween(c api.Conflict, p api.Pair) bool {
	on := func(node string) bool {
		return slices.ContainsFunc(c.Holders, func(b api.Binding) bool { return IsOn(b, node) })
	}
	return on(p.Nodes[0]) && on(p.Nodes[1])
}

// rangesOf returns the pairs of nodes that share more than [api.FewShared] addresses.
func rangesOf(document api.Conflicts) []api.Pair {
	return slices.DeleteFunc(slices.Clone(document.Pairs), func(p api.Pair) bool {
		return p.Addresses <= api.FewShared || len(p.Nodes) != 2
	})
}
