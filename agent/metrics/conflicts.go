package metrics

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxConflicts limits the conflicts with series of their own: two nodes may share a whole prefix.
const maxConflicts = 100

// selectOpen returns the open conflicts to export, confirmed ones first, then the oldest, and how many
// it omitted. Drills are not among them.
func selectOpen(all []detector.Conflict) (chosen []*detector.Conflict, omitted int) {
	for i := range all {
		if state := all[i].State; (state == detector.Suspected || state == detector.Confirmed) && !all[i].IsDrill() {
			chosen = append(chosen, &all[i])
		}
	}
	slices.SortFunc(chosen, func(a, b *detector.Conflict) int {
		return cmp.Or(
			cmp.Compare(b.State, a.State),
			a.SuspectedAt.Compare(b.SuspectedAt),
			a.Key.Compare(b.Key),
		)
	})
	omitted = max(0, len(chosen)-maxConflicts)
	return chosen[:len(chosen)-omitted], omitted
}

func exportConflicts(all []detector.Conflict, out *series) {
	type key struct{ id, network, ip string }
	chosen, omitted := selectOpen(all)
	exported := make(map[key]bool, len(chosen))
	for _, c := range chosen {
		k := key{escape(c.ID), escape(c.Key.Network), c.Key.IP.String()}
		if exported[k] { // escape may have shortened different names to one
			omitted++
			continue
		}
		exported[k] = true
		labels := []string{k.id, k.network, k.ip, c.State.String(), c.Scope.String()}
		for i := range 2 {
			var h detector.Holder
			if i < len(c.Holders) {
				h = c.Holders[i].Holder
			}
			labels = append(labels, h.Pod.String(), h.NetnsName, h.InterfaceName, h.MAC.String(), cluster.NodeName(h.ID.Node))
		}
		out.add(conflictInfo, 1, labels...)
		out.add(conflictHolders, float64(len(c.Holders)), k.id, k.network, k.ip)
		out.addTime(conflictSuspected, c.SuspectedAt, k.id, k.network, k.ip)
	}
	out.add(conflictInfoOmitted, float64(omitted))
}
