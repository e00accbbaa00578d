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

// drain is a whole command but for the node: without the flags kubectl refuses, because agents and caches are on every node.
const drain = "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data"

// adviseRanges says what is probably wrong when nodes share whole ranges. It ends with a colon if drain is to follow.
func adviseRanges(ranges []api.Pair) string {
	var nodes []string
	namesakes := false
	for _, p := range ranges {
		nodes = append(nodes, p.Nodes...)
		namesakes = namesakes || cli.WithoutBoot(p.Nodes[0]) == cli.WithoutBoot(p.Nodes[1])
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if namesakes {
		return cli.Conjoin(nodes) + " share a range: a node and its clone, or one that was replaced and still runs. " +
			"Shut one down; \"dupip nodes\" has their addresses."
	}
	if len(nodes) > 2 {
		return cli.Conjoin(nodes) + " share ranges: probably one pod CIDR was given out more than once, or nodes were cloned. " +
			"Compare their .spec.podCIDR, and drain those that have another's:"
	}
	return cli.Conjoin(nodes) + " share a range: probably one pod CIDR was given out twice, or one node is a clone. " +
		"Compare their .spec.podCIDR, and drain one:"
}

// adviseNamesakes says which nodes with one name have holders in one conflict.
func adviseNamesakes(conflicts []api.Conflict) []string {
	var lines []string
	for _, c := range conflicts {
		var same []string
		nodes, _ := cli.NodesOf(c.Holders)
		for n, b := range c.Holders {
			if nodes[n] != b.Node && !slices.Contains(same, nodes[n]) {
				same = append(same, nodes[n])
			}
		}
		line := cli.Conjoin(same) + " are nodes of one name: a machine that was replaced and still runs, or some made from " +
			"one image. Shut down the one that should not run; \"dupip nodes\" has their addresses."
		if len(same) > 1 && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
