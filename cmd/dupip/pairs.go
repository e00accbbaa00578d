package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

const (
	// fewShared is how many addresses two nodes may share without a line of their own.
	fewShared = 3
	// maxPairLines bounds those lines.
	maxPairLines = 10
)

// printPairs begins the table where two nodes share many addresses, or some that the
// table does not have: a whole prefix in collision is one fault, not hundreds.
func printPairs(out io.Writer, document api.Conflicts) {
	var lines []api.Pair
	for _, p := range document.Pairs {
		if p.Addresses > fewShared || len(p.Nodes) == 2 && !inTable(document.Conflicts, p) {
			lines = append(lines, p)
		}
	}
	for _, p := range lines[:min(len(lines), maxPairLines)] {
		examples := make([]string, 0, len(p.Examples)+1)
		for _, e := range p.Examples {
			examples = append(examples, inNetwork(e.IP, e.Network))
		}
		if len(p.Examples) < p.Addresses {
			examples = append(examples, "…")
		}
		wrapped(out, 2, fmt.Sprintf("%s share %s (%s)",
			strings.Join(p.Nodes, " and "), addresses(p.Addresses), strings.Join(examples, ", ")))
	}
	if more := len(lines) - maxPairLines; more > 0 {
		fmt.Fprintf(out, "%d more pairs of nodes share addresses\n", more)
	}
	if len(lines) > 0 {
		fmt.Fprintln(out)
	}
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

// inTable says whether a conflict has holders on both nodes.
func inTable(conflicts []api.Conflict, p api.Pair) bool {
	return slices.ContainsFunc(conflicts, func(c api.Conflict) bool { return isBetween(c, p) })
}
