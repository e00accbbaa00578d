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
		if pod.Name != "" && pod.Engine == "" && !exported[labels] {
			exported[labels] = true
			out.add(conflictHolderInfo, 1, labels[:]...)
		}
	}
}

const (
	// maxOfPair limits the listings of one pair of holders in listingTTL.
	maxOfPair = 2 * maxConflicts
	// listingTTL is how long a listing counts after its last scrape.
	listingTTL = 10 * time.Minute
	// maxListings limits the memory. What is exported beyond does not count.
	maxListings = 4096
)

// listing is what two pods can choose of the labels of their conflict.
type listing struct {
	pair       pairOfHolders
	key        detector.Key
	interfaces [2]string
	macs       [2]detector.MAC
}

// pairOfHolders are the two oldest holders of a conflict, in any order.
type pairOfHolders [2]detector.HolderID

// listings has when a scrape last had each listing. It bounds the series that a pair of holders makes over time: each new address, MAC
// or name of an interface makes new ones, which Prometheus keeps for hours.
type listings map[listing]time.Time

// expire forgets what no scrape had for listingTTL. It returns how many listings each pair has left.
func (l listings) expire(now time.Time) map[pairOfHolders]int {
	left := make(map[pairOfHolders]int)
	for is, at := range l {
		if now.Sub(at) > listingTTL {
			delete(l, is)
		} else {
			left[is.pair]++
		}
	}
	return left
}

// admit reports whether a conflict may have series of its own, and counts it in of.
func (l listings) admit(c *detector.Conflict, of map[pairOfHolders]int, now time.Time) bool {
	two := oldest(c)
	is := listing{
		pair: pairOfHolders{two[0].ID, two[1].ID}, key: c.Key,
		interfaces: [2]string{two[0].InterfaceName, two[1].InterfaceName}, macs: [2]detector.MAC{two[0].MAC, two[1].MAC},
	}
	if two[1].ID.Compare(two[0].ID) < 0 {
		is.pair = pairOfHolders{two[1].ID, two[0].ID}
	}
	if _, known := l[is]; !known {
		switch {
		case of[is.pair] >= maxOfPair:
			return false
		case len(l) >= maxListings:
			return true
		}
		of[is.pair]++
	}
	l[is] = now
	return true
}
