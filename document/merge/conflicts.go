package merge

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Conflicts joins the records that several nodes have of the same conflict: first the open
// conflicts, the gravest first, then the resolved ones, the latest first. It also returns how many
// records were left out.
func Conflicts(answers []document.Answer, rules Rules) ([]document.Conflict, int) {
	records := make(map[domain][]record)
	total, omitted := 0, 0
	for _, a := range answers {
		omitted += a.Omitted
		id := a.NodeID()
		for _, c := range a.Conflicts {
			if !acceptable(&a, &c) {
				continue
			}
			if total++; total > maxConflicts && !a.Self {
				omitted++
				continue
			}
			at := rules.domain(c.Network, c.IP, id)
			records[at] = append(records[at], record{id, a.Self, c})
		}
	}
	var list []document.Conflict
	for _, at := range slices.SortedFunc(maps.Keys(records), domain.compare) {
		for _, same := range byConflict(records[at]) {
			list = append(list, joined(same, records[at]))
		}
	}
	slices.SortStableFunc(list, compareConflicts)
	return list, omitted
}

// acceptable reports whether an agent may report a conflict: one of its own holders is in it. The conflicts of the node that asks are
// always accepted.
func acceptable(a *document.Answer, c *document.Conflict) bool {
	// Only the name is compared: the history reaches back before the last boot.
	return a.Self || slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.Node == a.Node })
}

func compareConflicts(a, b document.Conflict) int {
	byKey := cmp.Or(cmp.Compare(a.Network, b.Network), a.IP.Compare(b.IP), strings.Compare(a.ID, b.ID))
	if a.State == detector.Resolved && b.State == detector.Resolved {
		return cmp.Or(b.ResolvedAt.Compare(a.ResolvedAt), b.SuspectedAt.Compare(a.SuspectedAt), byKey)
	}
	return cmp.Or(
		cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(len(b.Holders), len(a.Holders)), a.SuspectedAt.Compare(b.SuspectedAt), byKey,
	)
}

// rankOf is lower for graver conflicts: more depends on a node's address than on a pod's.
func rankOf(c document.Conflict) (rank int) {
	for _, less := range []bool{c.State == detector.Resolved, c.Drill, c.State != detector.Confirmed, c.Scope != detector.PodHost} {
		if rank *= 2; less {
			rank++
		}
	}
	return rank
}
