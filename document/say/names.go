package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Who names the holder as well as is known: the pod or container, else its netns, or a process of that if the netns has no name.
func Who(b document.Binding) string {
	if f := b.Facts; b.Pod.IsContainer() && f != nil && f.Process != nil && strings.HasPrefix(b.Pod.UID, b.Pod.Name) {
		return fmt.Sprintf("%s (%s, pid %d)", b.Pod, f.Process.Command, f.Process.PID) // its engine does not tell its name
	}
	if b.Pod != nil {
		return b.Pod.String()
	}
	if f := b.Facts; f != nil && f.Process != nil && (b.Netns == "" || strings.HasPrefix(b.Netns, "net:[")) {
		return f.Process.String()
	}
	unnamed := "unseen netns"
	if b.NetnsCookie != 0 {
		unnamed = "(no name yet)" // a holder on another node, which has not sent its name yet
	}
	return cmp.Or(b.Netns, unnamed)
}

// InNetwork adds the network to an address unless it is the default network.
func InNetwork(ip, network string) string {
	if network == "default" {
		return ip
	}
	return ip + " (" + network + ")"
}

// NodesOf names the nodes of holders, with their boots where two nodes have one name. It also
// reports whether there is more than one node.
func NodesOf(holders []document.Binding) (names []string, several bool) {
	byID := merge.Names(each(holders, document.Binding.NodeID))
	return each(holders, func(b document.Binding) string { return byID[b.NodeID()] }), len(byID) > 1
}

// withoutBoot is a node's name without its boot.
func withoutBoot(name string) string {
	name, _, _ = strings.Cut(name, " (boot ")
	return name
}

// Labels names the holders of a conflict: with the node if there are several, and with the netns or
// interface where two holders still have one name.
func Labels(c document.Conflict) []string {
	nodes, several := NodesOf(c.Holders)
	var list []string
	count := make(map[string]int)
	for n, b := range c.Holders {
		name := Who(b)
		if b.Evidence == detector.Host {
			name = "node " + nodes[n]
		} else if several {
			name += " on " + nodes[n]
		}
		count[name]++
		list = append(list, name)
	}
	for n, b := range c.Holders {
		if more := cmp.Or(b.Netns, b.Interface); count[list[n]] > 1 && more != "" {
			if Who(b) == more {
				more = b.Interface
			}
			list[n] += " (" + more + ")"
		}
	}
	return list
}

// shortLabels is Labels without what is not needed to tell the holders apart.
func shortLabels(c document.Conflict) []string {
	names := Labels(c)
	count := make(map[string]int)
	for _, b := range c.Holders {
		count[Who(b)]++
	}
	for n, b := range c.Holders {
		if count[Who(b)] == 1 && b.Evidence != detector.Host {
			names[n] = Who(b)
		}
	}
	return names
}

// reservedFor names who has a reservation.
func reservedFor(r *document.Reservation) string {
	text := cmp.Or(r.Pod.String(), "sandbox "+r.Sandbox)
	switch {
	case r.Node != "" && r.Pod == nil && r.Sandbox == "":
		return "node " + r.Node
	case r.Node != "":
		return text + " on node " + r.Node
	case len(r.Sandboxes) > 0:
		return "one of the sandboxes " + List(r.Sandboxes)
	case r.Sandbox == "" && r.Pod == nil:
		return "a pod that is just being made"
	}
	return text
}

// maxListed is how many names a sentence lists.
const maxListed = 8

// List joins the first maxListed names with commas.
func List(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}

// Conjoin is List with "and" before the last name.
func Conjoin(names []string) string {
	if n := len(names) - 1; n > 0 && n < maxListed {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return List(names)
}

// Plural is a number of things.
func Plural(n int, one, many string) string { return fmt.Sprintf("%d %s", n, either(n, one, many)) }

// either is what one thing needs, or another number of them.
func either(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Addresses is a number of addresses.
func Addresses(n int) string { return Plural(n, "address", "addresses") }

// Span is a time in one unit.
func Span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// once returns texts in their order, each once.
func once(texts []string) (kept []string) {
	seen := make(map[string]bool)
	for _, text := range texts {
		if !seen[text] {
			kept = append(kept, text)
		}
		seen[text] = true
	}
	return kept
}

// each returns what f makes of each element of a list.
func each[T, V any](list []T, f func(T) V) (values []V) {
	for _, element := range list {
		values = append(values, f(element))
	}
	return values
}

// grouped returns what value makes of each element of a list, by what key makes of it; keys are in the order of the list.
func grouped[T any, K comparable, V any](list []T, key func(T) K, value func(T) V) (keys []K, groups map[K][]V) {
	groups = make(map[K][]V)
	for _, element := range list {
		k := key(element)
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], value(element))
	}
	return keys, groups
}

// unique removes duplicates, and leaves texts in their order.
func unique(texts []string) (list []string) {
	for _, text := range texts {
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// distinct sorts texts and removes duplicates.
func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
