package metrics

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxConflicts bounds the conflicts with series of their own: when two nodes share a
// whole prefix, an alert needs some examples, not all.
const maxConflicts = 100

var (
	conflictInfoDesc = describe(ConflictInfo,
		"An open conflict with its two eldest holders, always 1; at most 100, confirmed ones first, then the eldest.",
		"id", "network", "ip", "state", "scope",
		"first_pod", "first_netns", "first_interface", "first_mac", "first_node",
		"second_pod", "second_netns", "second_interface", "second_mac", "second_node")
	conflictInfoOmittedDesc = describe(ConflictInfoOmitted,
		"Open conflicts without series of their own, because there are more than 100.")
	conflictHoldersDesc = describe(ConflictHolders,
		"Holders of the address of an open conflict.", "id", "network", "ip")
	conflictSuspectedDesc = describe(ConflictSuspectedTimestamp,
		"When an open conflict was suspected first.", "id", "network", "ip")
)

// choose returns the open conflicts to export, confirmed ones first, then the eldest, and
// how many are left out.
func choose(conflicts []detector.Conflict) ([]detector.Conflict, int) {
	order := make([]*detector.Conflict, 0, len(conflicts))
	for i := range conflicts {
		if state := conflicts[i].State; state == detector.Suspected || state == detector.Confirmed {
			order = append(order, &conflicts[i])
		}
	}
	slices.SortFunc(order, func(a, b *detector.Conflict) int {
		return cmp.Or(
			-cmp.Compare(a.State, b.State),
			a.SuspectedAt.Compare(b.SuspectedAt),
			cmp.Compare(a.Key.Network, b.Key.Network),
			a.Key.IP.Compare(b.Key.IP),
		)
	})
	omitted := max(0, len(order)-maxConflicts)
	chosen := make([]detector.Conflict, 0, len(order)-omitted)
	for _, c := range order[:len(order)-omitted] {
		chosen = append(chosen, *c)
	}
	return chosen, omitted
}

func exportConflicts(conflicts []detector.Conflict, omitted int, out sink) {
	type key struct{ id, network, ip string }
	seen := make(map[key]bool, len(conflicts))
	for _, c := range conflicts {
		k := key{clean(c.ID), clean(c.Key.Network), c.Key.IP.String()}
		if seen[k] { // names that differ only in what a label cannot hold
			omitted++
			continue
		}
		seen[k] = true
		labels := []string{k.id, k.network, k.ip, c.State.String(), c.Scope.String()}
		for i := range 2 {
			var h detector.Holder
			if i < len(c.Holders) {
				h = c.Holders[i].Holder
			}
			labels = append(labels, h.Pod.String(), h.NetnsName, h.InterfaceName, h.MAC.String(), cluster.NodeName(h.ID.Node))
		}
		out.gauge(conflictInfoDesc, 1, labels...)
		out.gauge(conflictHoldersDesc, float64(len(c.Holders)), k.id, k.network, k.ip)
		if !c.SuspectedAt.IsZero() {
			out.gauge(conflictSuspectedDesc, seconds(c.SuspectedAt), k.id, k.network, k.ip)
		}
	}
	out.gauge(conflictInfoOmittedDesc, float64(omitted))
}
