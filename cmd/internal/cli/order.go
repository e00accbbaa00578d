package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Orders are the orders of a list, by the values of --sort-by.
type Orders[T any] map[string]func(a, b T) int

// The orders of lists. What is first in time comes first.
var (
	BindingOrders = Orders[document.Binding]{
		"ip": func(a, b document.Binding) int { return a.IP.Compare(b.IP) },
		"network": func(a, b document.Binding) int {
			return cmp.Or(strings.Compare(a.Network, b.Network), a.IP.Compare(b.IP))
		},
		"node":       func(a, b document.Binding) int { return strings.Compare(a.NodeID(), b.NodeID()) },
		"pod":        func(a, b document.Binding) int { return strings.Compare(say.Who(a), say.Who(b)) },
		"interface":  func(a, b document.Binding) int { return strings.Compare(a.Interface, b.Interface) },
		"first-seen": func(a, b document.Binding) int { return a.FirstSeen.Compare(b.FirstSeen) },
		"last-seen":  func(a, b document.Binding) int { return a.LastSeen.Compare(b.LastSeen) },
	}
	ConflictOrders = Orders[document.Conflict]{
		"ip": func(a, b document.Conflict) int { return a.IP.Compare(b.IP) },
		"network": func(a, b document.Conflict) int {
			return cmp.Or(strings.Compare(a.Network, b.Network), a.IP.Compare(b.IP))
		},
		"node": func(a, b document.Conflict) int {
			return slices.Compare(ofHolders(a, document.Binding.NodeID), ofHolders(b, document.Binding.NodeID))
		},
		"pod":   func(a, b document.Conflict) int { return slices.Compare(ofHolders(a, say.Who), ofHolders(b, say.Who)) },
		"state": func(a, b document.Conflict) int { return strings.Compare(a.State.String(), b.State.String()) },
		"since": func(a, b document.Conflict) int { return Since(a).Compare(Since(b)) },
		"began": func(a, b document.Conflict) int { return Began(a).Compare(Began(b)) },
	}
	FindingOrders = Orders[document.Finding]{
		"ip":      func(a, b document.Finding) int { return a.IP.Compare(b.IP) },
		"finding": func(a, b document.Finding) int { return strings.Compare(a.Kind, b.Kind) },
		"node":    func(a, b document.Finding) int { return strings.Compare(a.Node, b.Node) },
		"pod":     func(a, b document.Finding) int { return strings.Compare(a.Pod.String(), b.Pod.String()) },
		"since":   func(a, b document.Finding) int { return a.Since.Compare(b.Since) },
	}
	NodeOrders = Orders[document.Node]{
		"name":    func(a, b document.Node) int { return strings.Compare(a.Name, b.Name) },
		"state":   func(a, b document.Node) int { return cmp.Compare(a.State, b.State) },
		"since":   func(a, b document.Node) int { return a.Since.Compare(b.Since) },
		"heard":   func(a, b document.Node) int { return a.Heard.Compare(b.Heard) },
		"unacked": func(a, b document.Node) int { return cmp.Compare(b.Unacked, a.Unacked) },
	}
)

// ofHolders is what a conflict's holders have, in order.
func ofHolders(c document.Conflict, value func(document.Binding) string) []string {
	return slices.Sorted(slices.Values(each(c.Holders, value)))
}
