package cli

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// Orders are the orders of a list, by the values of --sort-by.
type Orders[T any] map[string]func(a, b T) int

// Names are the values of --sort-by.
func (o Orders[T]) Names() []string { return slices.Sorted(maps.Keys(o)) }

// Sort sorts a list by one of the names. Equal elements keep their order.
func (o Orders[T]) Sort(list []T, by string) { slices.SortStableFunc(list, o[by]) }

// The orders of lists. What is first in time comes first.
var (
	BindingOrders = Orders[api.Binding]{
		"ip": func(a, b api.Binding) int { return compareIPs(a.IP, b.IP) },
		"network": func(a, b api.Binding) int {
			return cmp.Or(strings.Compare(a.Network, b.Network), compareIPs(a.IP, b.IP))
		},
		"node":       func(a, b api.Binding) int { return strings.Compare(NodeID(a), NodeID(b)) },
		"pod":        func(a, b api.Binding) int { return strings.Compare(Who(a), Who(b)) },
		"interface":  func(a, b api.Binding) int { return strings.Compare(a.Interface, b.Interface) },
		"first-seen": func(a, b api.Binding) int { return a.FirstSeen.Compare(b.FirstSeen) },
		"last-seen":  func(a, b api.Binding) int { return a.LastSeen.Compare(b.LastSeen) },
	}
	ConflictOrders = Orders[api.Conflict]{
		"ip": func(a, b api.Conflict) int { return compareIPs(a.IP, b.IP) },
		"network": func(a, b api.Conflict) int {
			return cmp.Or(strings.Compare(a.Network, b.Network), compareIPs(a.IP, b.IP))
		},
		"node":  func(a, b api.Conflict) int { return slices.Compare(ofHolders(a, NodeID), ofHolders(b, NodeID)) },
		"pod":   func(a, b api.Conflict) int { return slices.Compare(ofHolders(a, Who), ofHolders(b, Who)) },
		"state": func(a, b api.Conflict) int { return strings.Compare(a.State, b.State) },
		"since": func(a, b api.Conflict) int { return Since(a).Compare(Since(b)) },
	}
	FindingOrders = Orders[api.Finding]{
		"ip":      func(a, b api.Finding) int { return compareIPs(a.IP, b.IP) },
		"finding": func(a, b api.Finding) int { return strings.Compare(a.Kind, b.Kind) },
		"node":    func(a, b api.Finding) int { return strings.Compare(a.Node, b.Node) },
		"pod":     func(a, b api.Finding) int { return strings.Compare(PodName(a.Pod), PodName(b.Pod)) },
		"since":   func(a, b api.Finding) int { return a.Since.Compare(b.Since) },
	}
	NodeOrders = Orders[api.Node]{
		"name":    func(a, b api.Node) int { return strings.Compare(a.Name, b.Name) },
		"state":   func(a, b api.Node) int { return strings.Compare(a.State, b.State) },
		"since":   func(a, b api.Node) int { return a.Since.Compare(b.Since) },
		"heard":   func(a, b api.Node) int { return a.Heard.Compare(b.Heard) },
		"unacked": func(a, b api.Node) int { return cmp.Compare(b.Unacked, a.Unacked) },
	}
)

// ofHolders is what a conflict's holders have, in order.
func ofHolders(c api.Conflict, value func(api.Binding) string) []string {
	return slices.Sorted(slices.Values(each(c.Holders, value)))
}

func compareIPs(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return x.Compare(y)
}
