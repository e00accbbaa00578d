package merge

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Conflicts joins the records that several nodes have of the same conflict: first the open
// conflicts, the gravest first, then the resolved ones, the latest first. It also returns how many
// records were left out.
func Conflicts(answers []cluster.Answer, rules Rules) ([]detector.Conflict, int) {
	records := make(map[domain][]record)
	total, omitted := 0, 0
	for _, a := range answers {
		omitted += omittedBy(a)
		id := a.Member.NodeID()
		for _, c := range a.Document.Conflicts {
			if !acceptable(a.Member, c) {
				continue
			}
			if total++; total > maxConflicts && !a.Member.Self {
				omitted++
				continue
			}
			at := rules.domain(c.Key, id)
			records[at] = append(records[at], record{id, a.Member.Self, c})
		}
	}
	var list []detector.Conflict
	for _, at := range slices.SortedFunc(maps.Keys(records), domain.compare) {
		for _, same := range byConflict(records[at]) {
			list = append(list, joined(same))
		}
	}
	slices.SortStableFunc(list, compareConflicts)
	return list, omitted
}

// acceptable reports whether a member may report a conflict: one of its own holders is in it. This
// agent's own conflicts are always accepted.
func acceptable(m cluster.Member, c detector.Conflict) bool {
	return m.Self || c.Key.IP.IsValid() && c.State >= detector.Suspected && c.State <= detector.Resolved &&
		slices.ContainsFunc(c.Holders, func(b detector.Binding) bool {
			// Only the name is compared: the history reaches back before the last boot.
			return cluster.NodeName(b.Holder.ID.Node) == m.Name
		})
}

func compareConflicts(a, b detector.Conflict) int {
	byKey := cmp.Or(a.Key.Compare(b.Key), strings.Compare(a.ID, b.ID))
	if a.State == detector.Resolved && b.State == detector.Resolved {
		return cmp.Or(b.ResolvedAt.Compare(a.ResolvedAt), byKey)
	}
	return cmp.Or(
		cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(len(b.Holders), len(a.Holders)), a.SuspectedAt.Compare(b.SuspectedAt), byKey,
	)
}

// rankOf is lower for graver conflicts: more depends on a node's address than on a pod's.
func rankOf(c detector.Conflict) (rank int) {
	for _, less := range []bool{c.State == detector.Resolved, c.IsDrill(), c.State != detector.Confirmed, c.Scope != detector.PodHost} {
		if rank *= 2; less {
			rank++
		}
	}
	return rank
}
