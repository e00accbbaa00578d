package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

const (
	// fewShared is how many addresses two nodes may share without a line of their own.
	fewShared = 3
	// maxPairLines bounds these lines.
	maxPairLines = 10
)

// printPairs prints, before the table, the nodes that share many addresses, or some that the table
// does not have: if a whole prefix has two holders, that is one fault, not hundreds.
func printPairs(out io.Writer, document api.Conflicts) {
	var lines []api.Pair
	for _, p := range document.Pairs {
		inTable := func(c api.Conflict) bool { return isBetween(c, p) }
		if p.Addresses > fewShared || len(p.Nodes) == 2 && !slices.ContainsFunc(document.Conflicts, inTable) {
			lines = append(lines, p)
		}
	}
	for _, p := range lines[:min(len(lines), maxPairLines)] {
		var examples []string
		for _, e := range p.Examples {
			examples = append(examples, cli.InNetwork(e.IP, e.Network))
		}
		if len(p.Examples) < p.Addresses {
			examples = append(examples, "…")
		}
		wrapped(out, 2, fmt.Sprintf("%s share %s (%s)",
			strings.Join(p.Nodes, " and "), cli.Addresses(p.Addresses), strings.Join(examples, ", ")))
	}
	if more := len(lines) - maxPairLines; more > 0 {
		fmt.Fprintf(out, "%d more pairs of nodes share addresses\n", more)
	}
	if len(lines) > 0 {
		fmt.Fprintln(out)
	}
}

// isBetween reports whether a conflict has holders on both nodes of a pair.
func isBetween(c api.Conflict, p api.Pair) bool {
	on := func(node string) bool {
		return slices.ContainsFunc(c.Holders, func(b api.Binding) bool { return cli.IsOn(b, node) })
	}
	return on(p.Nodes[0]) && on(p.Nodes[1])
}

// rangesOf returns the pairs of nodes that share more than fewShared addresses.
func rangesOf(document api.Conflicts) []api.Pair {
	return slices.DeleteFunc(slices.Clone(document.Pairs), func(p api.Pair) bool {
		return p.Addresses <= fewShared || len(p.Nodes) != 2
	})
}
