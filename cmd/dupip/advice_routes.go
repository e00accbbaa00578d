package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/merge"
)

// nodesOf names the nodes of a conflict's holders, by their boots where two have one name.
func nodesOf(c api.Conflict) []string {
	names := nodeNames(c.Holders)
	var list []string
	for _, b := range c.Holders {
		list = append(list, names[nodeID(b)])
	}
	return list
}

// nodeID tells nodes apart.
func nodeID(b api.Binding) string { return b.Node + "/" + b.Boot }

// nodeNames names the nodes of holders by their ids.
func nodeNames(holders []api.Binding) map[string]string {
	var ids []string
	for _, b := range holders {
		if id := nodeID(b); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	names := make(map[string]string)
	for n, name := range merge.Names(ids) {
		names[ids[n]] = name
	}
	return names
}

// labels names the holders of a conflict: by node where there are several, and by netns or
// interface where two still have one name.
func labels(c api.Conflict) []string {
	nodes := nodesOf(c)
	several := slices.ContainsFunc(nodes, func(n string) bool { return n != nodes[0] })
	var list []string
	count := make(map[string]int)
	for n, b := range c.Holders {
		name := who(b)
		if b.Evidence == "host" {
			name = "node " + nodes[n]
		} else if several {
			name += " on " + nodes[n]
		}
		count[name]++
		list = append(list, name)
	}
	for n, b := range c.Holders {
		if more := cmp.Or(b.Netns, b.Interface); count[list[n]] > 1 && more != "" {
			if who(b) == more {
				more = b.Interface
			}
			list[n] += " (" + more + ")"
		}
	}
	return list
}

// shortLabels leaves out what is not needed to tell the holders apart.
func shortLabels(c api.Conflict) []string {
	names := labels(c)
	count := make(map[string]int)
	for _, b := range c.Holders {
		count[who(b)]++
	}
	for n, b := range c.Holders {
		if count[who(b)] == 1 && b.Evidence != "host" {
			names[n] = who(b)
		}
	}
	return names
}

// routes tells where packets go, and who gets none.
func routes(c api.Conflict) string {
	if len(c.Routes) == 0 {
		return ""
	}
	names := shortLabels(c)
	var targets []string
	from := make(map[string][]string)
	for _, r := range c.Routes {
		target, node := target(c, r, names), r.Node
		if overBridge(c, r) {
			node += " itself" // what is on the bridge has neighbour entries of its own
		}
		if len(from[target]) == 0 {
			targets = append(targets, target)
		}
		from[target] = append(from[target], node)
	}
	var parts []string
	for _, target := range targets {
		parts = append(parts, "from "+conjoin(from[target])+" "+target)
	}
	text := "Packets to it go " + strings.Join(parts, ", ") + "."
	for n, name := range names {
		if nodes := withoutTraffic(c, n); len(nodes) == len(c.Routes) {
			text += fmt.Sprintf(" %s gets no traffic from %s.", name, conjoin(nodes))
		}
	}
	return text
}

// overBridge says whether packets find a holder by the neighbour entry on a bridge, or another
// device that is not the holder's own.
func overBridge(c api.Conflict, r api.Route) bool {
	return r.Holder != nil && r.Device != "" && r.Device != c.Holders[*r.Holder].Interface
}

func target(c api.Conflict, r api.Route, names []string) string {
	by := ""
	if r.Device != "" {
		by = " by " + r.Device
	}
	if r.Gateway != "" {
		by += " via " + r.Gateway
	}
	switch r.To {
	case "holder":
		if b := c.Holders[*r.Holder]; b.Evidence == "host" && isOn(b, r.Node) {
			return "to itself"
		}
		if overBridge(c, r) {
			return "to " + names[*r.Holder] + by
		}
		return "to " + names[*r.Holder]
	case "node":
		return "to node " + r.ToNode
	case "away":
		return "off the node" + by
	case "self":
		return "to itself"
	case "nowhere":
		return "nowhere, for lack of a route"
	case "unknown":
		return "into " + r.Device + ", which has no neighbour entry for it now"
	}
	return "into " + r.Device
}

// withoutTraffic returns the nodes that certainly send nothing to a holder.
func withoutTraffic(c api.Conflict, holder int) []string {
	var nodes []string
	b := c.Holders[holder]
	for _, r := range c.Routes {
		none := false
		switch r.To {
		case "holder":
			none = *r.Holder != holder
		case "node":
			none = !isOn(b, r.ToNode)
		case "away":
			none = isOn(b, r.Node)
		case "self":
			none = b.Evidence != "host"
		case "nowhere":
			none = true
		}
		if !none {
			continue
		}
		node := r.Node
		if overBridge(c, r) {
			node += " itself"
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// conjoin joins a few words with commas and an "and".
func conjoin(words []string) string {
	if len(words) > maxListed {
		return list(words, maxListed)
	}
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

// rangesOf returns the pairs of nodes that share more than a few addresses.
func rangesOf(document api.Conflicts) []api.Pair {
	var ranges []api.Pair
	for _, p := range document.Pairs {
		if p.Addresses > fewShared && len(p.Nodes) == 2 {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// adviseRanges says what is probably wrong where nodes share whole ranges.
func adviseRanges(ranges []api.Pair) string {
	var nodes []string
	namesake := false
	for _, p := range ranges {
		for _, name := range p.Nodes {
			if !slices.Contains(nodes, name) {
				nodes = append(nodes, name)
			}
		}
		namesake = namesake || plainNode(p.Nodes[0]) == plainNode(p.Nodes[1])
	}
	slices.Sort(nodes)
	if namesake {
		return conjoin(nodes) + " share a range: a node and its clone, or one that was replaced and still runs. " +
			"Shut one down; \"dupip nodes\" has their addresses."
	}
	if len(nodes) > 2 {
		return conjoin(nodes) + " share ranges: probably one pod CIDR was given out more than once, or nodes were cloned. " +
			"Compare their .spec.podCIDR, and drain those that have another's."
	}
	return conjoin(nodes) + " share a range: probably one pod CIDR was given out twice, or one node is a clone. " +
		"Compare their .spec.podCIDR, and drain one."
}

// plainNode is a node's name without its boot.
func plainNode(name string) string {
	name, _, _ = strings.Cut(name, " (boot ")
	return name
}

// isBetween says whether a conflict has holders on both nodes of a pair.
func isBetween(c api.Conflict, p api.Pair) bool {
	on := func(node string) bool {
		return slices.ContainsFunc(c.Holders, func(b api.Binding) bool { return isOn(b, node) })
	}
	return on(p.Nodes[0]) && on(p.Nodes[1])
}

// isOn says whether a holder is on the node of a name, which may have a boot beside it.
func isOn(b api.Binding, node string) bool {
	return b.Node == node || merge.FullName(nodeID(b)) == node
}

// namesakes says which nodes of one name have holders in one conflict.
func namesakes(conflicts []api.Conflict) []string {
	var lines []string
	for _, c := range conflicts {
		var same []string
		for n, b := range c.Holders {
			if name := nodesOf(c)[n]; name != b.Node && !slices.Contains(same, name) {
				same = append(same, name)
			}
		}
		if len(same) < 2 {
			continue
		}
		line := conjoin(same) + " are nodes of one name: a machine that was replaced and still runs, or some made from " +
			"one image. Shut down the one that should not run; \"dupip nodes\" has their addresses."
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
