package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// maxConflicts limits the conflicts with series of their own: two nodes may share a whole prefix.
const maxConflicts = 100

// maxHolders limits the holders of a conflict with series of their own.
const maxHolders = 8

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

// exportConflicts exports the open conflicts, and the holders' pods of the confirmed ones if holders is set.
func exportConflicts(all []detector.Conflict, holders bool, listed listings, out *series) {
	type key struct{ id, network, ip string }
	chosen, omitted := selectOpen(all)
	exported, named := make(map[key]bool, len(chosen)), make(map[[4]string]bool)
	now := time.Now()
	ofPair := listed.expire(now)
	for _, c := range chosen {
		k := key{escape(idLabel(c.ID)), escape(c.Key.Network), c.Key.IP.String()}
		if exported[k] || !listed.admit(c, ofPair, now) { // escape may have shortened different names to one
			omitted++
			continue
		}
		exported[k] = true
		labels := []string{k.id, k.network, k.ip, c.State.String(), c.Scope.String()}
		for _, h := range oldest(c) {
			labels = append(labels, h.Pod.String(), h.NetnsName, h.InterfaceName, h.MAC.String(), cluster.NodeName(h.ID.Node))
		}
		out.add(conflictInfo, 1, labels...)
		out.add(conflictHolders, float64(len(c.Holders)), k.id, k.network, k.ip)
		out.addTime(conflictSuspected, c.SuspectedAt, k.id, k.network, k.ip)
		if holders && c.State == detector.Confirmed {
			exportHolders(c, named, out)
		}
	}
	out.add(conflictInfoOmitted, float64(omitted))
}

// idLabel returns a conflict's id with 1 and 2 by turns as its occurrence, so that an address has few series however often it
// collides. Two in succession differ: the rules take a suspicion for the confirmed conflict of the same id, that an agent restored.
func idLabel(id string) string {
	hash, occurrence, _ := strings.Cut(id, "-")
	n, err := strconv.Atoi(occurrence)
	if err != nil {
		return id
	}
	return fmt.Sprintf("%s-%d", hash, 2-n%2)
}

// oldest returns the two oldest holders of a conflict.
func oldest(c *detector.Conflict) (two [2]detector.Holder) {
	for i := range min(len(two), len(c.Holders)) {
		two[i] = c.Holders[i].Holder
	}
	return two
}

// exportHolders exports the pods of the oldest holders of a conflict that are not in exported, and adds them to it: a pod may have two
// netns, and escape may have shortened different names to one.
func exportHolders(c *detector.Conflict, exported map[[4]string]bool, out *series) {
	for _, b := range c.Holders[:min(len(c.Holders), maxHolders)] {
		pod := b.Holder.Pod
		labels := [4]string{escape(c.Key.Network), c.Key.IP.String(), escape(pod.Namespace), escape(pod.Name)}
		if pod.Name != "" && !exported[labels] {
			exported[labels] = true
			out.add(conflictHolderInfo, 1, labels[:]...)
		}
	}
}
