package say

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Pairs names the nodes that share many addresses, or some that are in none of the conflicts: if a whole prefix has two holders,
// that is one fault, not hundreds. Only the first most pairs are listed.
func Pairs(doc document.Conflicts, most int) (lines []string) {
	for _, pair := range doc.Pairs {
		isListed := func(c document.Conflict) bool { return isBetween(c, pair) }
		if pair.Addresses <= document.FewShared && (len(pair.Nodes) != 2 || slices.ContainsFunc(doc.Conflicts, isListed)) {
			continue
		}
		examples := each(pair.Examples, func(a document.Address) string { return InNetwork(a.IP.String(), a.Network) })
		if len(pair.Examples) < pair.Addresses {
			examples = append(examples, "…")
		}
		lines = append(lines, fmt.Sprintf("%s share %s (%s)", strings.Join(pair.Nodes, " and "), Addresses(pair.Addresses), strings.Join(examples, ", ")))
	}
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], Plural(more, "more pair", "more pairs")+" of nodes share addresses")
	}
	return lines
}

// isBetween reports whether a conflict has holders on both nodes of a pair.
func isBetween(c document.Conflict, p document.Pair) bool {
	on := func(node string) bool { // which may include the boot
		return slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.Node == node || merge.FullName(b.NodeID()) == node })
	}
	return len(p.Nodes) == 2 && on(p.Nodes[0]) && on(p.Nodes[1])
}
