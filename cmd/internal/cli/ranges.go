package cli

import (
	"fmt"
	"slices"

	"github.com/dupip/dupip/document"
)

// Drain is a whole command but for the node: without the flags kubectl refuses, because agents and caches are on every node.
const Drain = "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data"

// AdviseRanges says what is probably wrong when nodes share whole ranges. It ends with a colon if [Drain] is to follow.
func AdviseRanges(ranges []document.Pair) string {
	var nodes []string
	namesakes := false
	for _, p := range ranges {
		nodes = append(nodes, p.Nodes...)
		namesakes = namesakes || WithoutBoot(p.Nodes[0]) == WithoutBoot(p.Nodes[1])
	}
	nodes = distinct(nodes)
	names := Conjoin(nodes)
	if len(nodes) > 4 {
		names = fmt.Sprintf("%d nodes", len(nodes))
	}
	if namesakes {
		return names + " share a range: probably a node and its clone, or one that was replaced and still runs. " +
			"Shut one down; \"dupip nodes\" has their addresses."
	}
	if len(nodes) > 2 {
		return names + " share ranges: probably one pod CIDR was given out more than once, or nodes were cloned. " +
			"Compare their .spec.podCIDR, and drain those that have another's:"
	}
	return names + " share a range: probably one pod CIDR was given out twice, or one node is a clone. " +
		"Compare their .spec.podCIDR, and drain one:"
}

// AdviseNamesakes says which nodes with one name have holders in one conflict.
func AdviseNamesakes(conflicts []document.Conflict) []string {
	var lines []string
	for _, c := range conflicts {
		var same []string
		nodes, _ := NodesOf(c.Holders)
		for n, b := range c.Holders {
			if nodes[n] != b.Node && !slices.Contains(same, nodes[n]) {
				same = append(same, nodes[n])
			}
		}
		line := Conjoin(same) + " are nodes of one name: probably a machine that was replaced and still runs, or some made from " +
			"one image. Shut down the one that should not run; \"dupip nodes\" has their addresses."
		if len(same) > 1 && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
