package say

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// fewOthers is with how many nodes a node may share addresses before that is one fault of its own.
const fewOthers = 3

// claimant returns the node that shares addresses with more than fewOthers others, which do not: it has a wrong range, is a clone, or somebody
// with the gossip key invents it, or them. It is empty if there is none, or more than one, which then share a range.
func claimant(pairs []document.Pair) (node string, others []string) {
	of := make(map[string][]string)
	for _, p := range pairs {
		if len(p.Nodes) == 2 && withoutBoot(p.Nodes[0]) != withoutBoot(p.Nodes[1]) {
			of[p.Nodes[0]], of[p.Nodes[1]] = append(of[p.Nodes[0]], p.Nodes[1]), append(of[p.Nodes[1]], p.Nodes[0])
		}
	}
	maps.DeleteFunc(of, func(_ string, others []string) bool { return len(others) <= fewOthers })
	if len(of) != 1 {
		return "", nil
	}
	for node, others = range of {
		slices.Sort(others)
	}
	return node, others
}

// Claimant returns the node, with the number of others, about which there is one thing to do in place of one about each address that it
// shares: [Entries] has it. has reports whether a conflict is one of these. It is empty if there is none.
func Claimant(doc document.Conflicts) (node string, others int, has func(document.Conflict) bool) {
	node, names := claimant(doc.Pairs)
	return node, len(names), func(c document.Conflict) bool {
		return slices.ContainsFunc(doc.Pairs, func(p document.Pair) bool { return claims(p, node) && isBetween(c, p) })
	}
}

// claims reports whether a pair is one of a claimant.
func claims(p document.Pair, node string) bool { return node != "" && slices.Contains(p.Nodes, node) }

// commonSteps are the steps that end many confirmed conflicts at once: ranges that nodes share, a node that has those of others, and machines
// of one name.
func commonSteps(doc document.Conflicts) (list []document.Step) {
	confirmed := slices.DeleteFunc(slices.Clone(doc.Conflicts), func(c document.Conflict) bool { return c.State != detector.Confirmed || c.Drill })
	ids := make(map[string]string) // NodeIDs by the names of nodes in pairs
	for _, c := range confirmed {
		for _, b := range c.Holders {
			id := b.NodeID()
			if other, known := ids[b.Node]; ids[merge.FullName(id)] == "" {
				ids[merge.FullName(id)] = id
				if ids[b.Node] = id; known && other != id {
					ids[b.Node] = "" // two nodes have the name
				}
			}
		}
	}
	var shared, machines []string
	claimer, victims := claimant(doc.Pairs)
	for _, p := range doc.Pairs {
		switch {
		case len(p.Nodes) != 2, claims(p, claimer):
		case withoutBoot(p.Nodes[0]) == withoutBoot(p.Nodes[1]):
			machines = append(machines, p.Nodes...)
		case p.Addresses > document.FewShared && !isLocal(p, confirmed):
			shared = append(shared, p.Nodes...)
		}
	}
	machines, shared = unique(machines), unique(shared)
	if claimer != "" {
		list = append(list, document.Step{
			Text: fmt.Sprintf("%s shares addresses with %s, which share none with each other. Either it has a wrong range or is a clone, or somebody who has the gossip key invents "+
				"it, or them. Before you delete a pod, look whether the API server has each of these nodes, with the boot ids that \"dupip nodes -o wide\" shows. "+
				"Shut down what should not run, and rotate the key", claimer, Conjoin(victims)),
			Command: readBoots,
		})
	}
	if len(machines) > 0 {
		list = append(list, document.Step{
			Text: Conjoin(machines) + ` are machines with one node name. Shut down the one that should not run: the API server knows the boot id ` +
				`of the other, and "dupip nodes" has their addresses`,
			Command: readBoots,
		})
	}
	if len(shared) > 0 {
		list = append(list, document.Step{
			Text: fmt.Sprintf("%s share ranges: probably one was given out twice, or a node was cloned. Before you delete a pod, look which range the API server has "+
				"for each of them. A node that gives out another one has a wrong range. If nodes have the same range there, or none, only one of them may keep it", Conjoin(shared)),
			Command: readRanges,
		})
	}
	for _, name := range shared[:min(len(shared), maxAsked)] {
		list = append(list, drainStep(ids[name], name))
	}
	if len(shared) > maxAsked {
		list = append(list, lookAgain)
	}
	return list
}

// isLocal reports whether all conflicts between two nodes may come from bridges with a range for each node.
func isLocal(p document.Pair, conflicts []document.Conflict) bool {
	between := slices.DeleteFunc(slices.Clone(conflicts), func(c document.Conflict) bool { return !isBetween(c, p) })
	return len(between) > 0 && !slices.ContainsFunc(between, func(c document.Conflict) bool { return localBridges(c) == nil })
}

var (
	// pluginBridges are the bridges that network plugins make by default. Their addresses are the cluster's.
	pluginBridges = []string{"cni0", "cbr0", "kube-bridge", "weave", "ovs-system"}
	// plainBridge matches names that are no patterns and make names of networks, as long as IFNAMSIZ (include/uapi/linux/if.h) allows.
	plainBridge = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,14}$`)
)

const (
	// defaultNetwork is the cluster's: to declare it local would end the comparison of all pods.
	defaultNetwork = "default"
	maxEntries     = 3
)

// localRange says how to declare that the bridges behind these conflicts have a range for each node, as bridges of container engines
// do. It is empty if no conflict may come from that: all holders are on different nodes, behind bridges that no network plugin made,
// and no plugin gave them the address; an engine may have.
func localRange(conflicts ...document.Conflict) []document.Step {
	var entries, names, nodes []string
	for _, c := range conflicts {
		bridges := localBridges(c)
		if bridges == nil {
			continue
		}
		entries = append(entries, fmt.Sprintf("  - {name: %q, scope: node, match: {bridges: [\"%s\"]}}\n", bridges[0], strings.Join(bridges, `", "`)))
		names = append(names, bridges...)
		on, _ := NodesOf(c.Holders)
		nodes = append(nodes, on...)
	}
	if entries == nil {
		return nil
	}
	entries, names, nodes = distinct(entries), distinct(names), distinct(nodes)
	if more := len(entries) - maxEntries; more > 0 {
		entries = append(entries[:maxEntries], fmt.Sprintf("  # and so on for %s\n", Plural(more, "more bridge", "more bridges")))
	}
	n := len(names)
	bridges := either(n, "bridge ", "bridges ") + Conjoin(names)
	return []document.Step{{
		If:      either(n, "If the range of bridge ", "If the ranges of bridges ") + Conjoin(names) + either(n, " is", " are") + " meant to be local to each node",
		Text:    "Remove nothing, and add this to the configuration of " + Conjoin(nodes),
		Command: "networks:\n" + strings.Join(entries, ""), File: "the configuration (--config)",
	}, {
		If: "If not", Text: "Give " + bridges + " a range of its own on each node",
	}}
}

// localBridges are the bridges of the holders of a conflict whose addresses may be local to each node, nil if they are not.
func localBridges(c document.Conflict) (bridges []string) {
	if c.Network != defaultNetwork || len(c.Holders) < 2 {
		return nil
	}
	on := make(map[string]bool)
	for _, b := range c.Holders {
		if !plainBridge.MatchString(b.Bridge) || b.Bridge == defaultNetwork || slices.Contains(pluginBridges, b.Bridge) ||
			!b.Pod.IsContainer() && (b.Pod != nil || b.Given != detector.GivenUnknown) || on[b.NodeID()] {
			return nil
		}
		on[b.NodeID()] = true
		bridges = append(bridges, b.Bridge)
	}
	return distinct(bridges)
}

// Pairs names the nodes that share many addresses, or some that are in none of the conflicts: if a whole prefix has two holders,
// that is one fault, not hundreds. Only the first most pairs are listed.
func Pairs(doc document.Conflicts, most int) (lines []string) {
	claimer, victims := claimant(doc.Pairs)
	if claimer != "" {
		lines = append(lines, fmt.Sprintf("%s shares addresses with %s", claimer, few(victims)))
	}
	for _, pair := range doc.Pairs {
		if claims(pair, claimer) {
			continue
		}
		isListed := func(c document.Conflict) bool { return isBetween(c, pair) }
		if pair.Addresses <= document.FewShared && (len(pair.Nodes) != 2 || slices.ContainsFunc(doc.Conflicts, isListed)) {
			continue
		}
		examples := each(pair.Examples, func(a document.Address) string { return InNetwork(a.IP.String(), a.Network) })
		if len(pair.Examples) < pair.Addresses {
			examples = append(examples, "...")
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
