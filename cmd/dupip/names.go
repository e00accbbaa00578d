package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/merge"
)

// who names the holder as well as is known: the pod, else the netns.
func who(b api.Binding) string {
	unnamed := "unseen netns"
	if b.NetnsCookie != 0 {
		unnamed = "(no name yet)" // a holder on another node, which has not sent its name yet
	}
	return cmp.Or(podName(b.Pod), b.Netns, unnamed)
}

func podName(p *api.Pod) string {
	if p == nil {
		return ""
	}
	return p.String()
}

// describeHolder is who, with a remark if the holder's node does not answer.
func describeHolder(b api.Binding) string {
	if b.Unreachable {
		return who(b) + " (unreachable)"
	}
	return who(b)
}

// inNetwork adds the network to an address unless it is the default network.
func inNetwork(ip, network string) string {
	if network == "default" {
		return ip
	}
	return ip + " (" + network + ")"
}

func nodeID(b api.Binding) string { return b.Node + "/" + b.BootID }

// nodesOf names the nodes of holders, with their boots where two nodes have one name. It also
// reports whether there is more than one node.
func nodesOf(holders []api.Binding) (names []string, several bool) {
	var ids []string
	for _, b := range holders {
		ids = append(ids, nodeID(b))
	}
	byID := merge.Names(ids)
	for _, id := range ids {
		names = append(names, byID[id])
	}
	return names, len(byID) > 1
}

// isOn reports whether a holder is on the node with that name, which may include the boot.
func isOn(b api.Binding, node string) bool {
	return b.Node == node || merge.FullName(nodeID(b)) == node
}

// withoutBoot is a node's name without its boot.
func withoutBoot(name string) string {
	name, _, _ = strings.Cut(name, " (boot ")
	return name
}

// labels names the holders of a conflict: with the node if there are several, and with the netns or
// interface where two holders still have one name.
func labels(c api.Conflict) []string {
	nodes, several := nodesOf(c.Holders)
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

// shortLabels is labels without what is not needed to tell the holders apart.
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

// maxListed is how many names a sentence lists.
const maxListed = 8

// list joins the first maxListed names with commas.
func list(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}

// conjoin is list with "and" before the last name.
func conjoin(names []string) string {
	if n := len(names) - 1; n > 0 && n < maxListed {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return list(names)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func addresses(n int) string { return plural(n, "address", "addresses") }
