package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

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

// LocalRange says how to declare that the bridges behind these conflicts have a range for each node, as bridges of container
// engines do, and the lines of the configuration that declare it. Both are empty if no conflict may come from that: all holders
// are on different nodes, behind bridges that no network plugin made, and no plugin gave them the address.
func LocalRange(conflicts ...document.Conflict) (text, lines string) {
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
		return "", ""
	}
	entries, names, nodes = distinct(entries), distinct(names), distinct(nodes)
	if more := len(entries) - maxEntries; more > 0 {
		entries = append(entries[:maxEntries], fmt.Sprintf("  # and so on for %s\n", Plural(more, "more bridge", "more bridges")))
	}
	n := len(names)
	return either(n, "If the range of bridge ", "If the ranges of bridges ") + Conjoin(names) + either(n, " is", " are") +
		" meant to be local to each node, nothing is to be removed: add this to the configuration (--config) of " +
		Conjoin(nodes) + ":", "networks:\n" + strings.Join(entries, "")
}

// localBridges are the bridges of the holders of a conflict whose addresses may be local to each node, nil if they are not.
func localBridges(c document.Conflict) (bridges []string) {
	if c.Network != defaultNetwork || len(c.Holders) < 2 {
		return nil
	}
	on := make(map[string]bool)
	for _, b := range c.Holders {
		if !plainBridge.MatchString(b.Bridge) || b.Bridge == defaultNetwork || slices.Contains(pluginBridges, b.Bridge) ||
			b.Pod != nil || b.Given != detector.GivenUnknown || on[b.NodeID()] {
			return nil
		}
		on[b.NodeID()] = true
		bridges = append(bridges, b.Bridge)
	}
	return distinct(bridges)
}

// distinct sorts texts and removes duplicates.
func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
