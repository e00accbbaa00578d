package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// cause says why the address has several holders, and what is probably wrong behind that.
func (v *voice) cause() string {
	nodes := v.nodesAbout()
	open := v.list(v.with(document.Open))
	switch v.c.Judgement.Cause {
	case document.CauseEnding:
		return v.say(1, "Fewer than two live holders [are|were] left: the conflict [ends|ended] by itself.")
	case document.CauseComing:
		if text := v.doubled(); text != "" {
			return text
		}
		late := v.coming()
		return v.say(len(late), "Not all facts about %s [have|have|had|had] come from [its node|their nodes|its node|their nodes] yet.", v.list(late))
	case document.CauseLeftOver:
		if dead := v.with(document.Remove, document.ReasonStopped, document.ReasonForgotten, document.ReasonReplaced); len(dead) > 0 {
			return fmt.Sprintf("Probably the %s's clean-up (CNI DEL) failed or never ran: see the runtime's log on node %s.", v.giver(dead...),
				Conjoin(distinct(each(dead, v.node))))
		}
	case document.CauseByHand:
		if by := v.with(document.Remove, document.ReasonNotGiven); len(by) > 0 {
			return fmt.Sprintf("It was probably set by hand in %s, or by a program there: there is nothing to repair in IPAM.", v.list(by))
		}
		return "It was probably set by hand in each of them, or by programs there: there is nothing to repair in IPAM."
	case document.CauseLost:
		return cmp.Or(v.lostByCluster(), v.lost())
	case document.CauseDeleted:
		return v.nodeDeleted()
	case document.CauseUnlisted:
		return v.say(1, "The API server [does|did] not have the pod any more: it was deleted, and its sandbox [runs|ran] on.")
	case document.CauseSharedRange:
		return v.sharedRange()
	case document.CauseNamesakes:
		return v.say(len(nodes), "%s [are|were] machines with one node name: probably one was replaced and still [runs|ran], or [is|was] a clone.",
			Conjoin(each(v.about(), v.machineName))) + v.replaced() + v.ofEarlier()
	case document.CauseClone:
		return v.say(len(nodes), "%s [run|ran] the same %s: probably one [is|was] a clone, or was replaced and still [runs|ran].", Conjoin(nodes), v.kind("pod", "container"))
	case document.CauseNodeAddress:
		return v.nodeAddress()
	case document.CauseTwoNodes:
		return v.twoNodes()
	case document.CauseUnreachable:
		lost := v.unreachable()
		return v.say(len(lost), "%s [does|do|did|did] not answer: it [is|is|was|was] not known whether the holders there [are|are|were|were] alive.", nodesNamed(lost))
	case document.CauseAway:
		return v.away()
	case document.CauseUnknown:
		return v.unknown(open)
	}
	return "" // a judgement of another version may have another cause
}

// doubled says which node names two machines have now, empty if facts are missing instead.
func (v *voice) doubled() string {
	names := distinct(each(v.c.Judgement.Nodes, cluster.NodeName))
	if len(names) == 0 {
		return ""
	}
	return v.say(len(names), "Two machines [have|each have|had|each had] the "+either(len(names), "name ", "names ")+Conjoin(names)+": one was booted anew a moment ago, or is a namesake.")
}

// coming are the live holders whose facts have not come.
func (v *voice) coming() []int {
	all := v.with(document.Open)
	if missing := slices.DeleteFunc(slices.Clone(all), func(n int) bool { return v.c.Holders[n].Facts != nil }); len(missing) > 0 {
		return missing
	}
	return all
}

// lost says which book has lost a reservation.
func (v *voice) lost() string {
	var parts []string
	for _, b := range v.c.Books {
		isIts := func(n int) bool { return v.nodeID(n) == b.NodeID() }
		if b.Unreserved >= wiped && slices.ContainsFunc(v.with(document.Remove, document.ReasonNotReserved), isIts) {
			parts = append(parts, v.say(1, "The store of %s (network %s) on node %s was probably wiped: it [has|had] no reservation for %s, whose addresses [may be|might be] given out again.",
				b.Kind, b.CNINetwork, v.nodeName(b.NodeID()), Plural(b.Unreserved, "pod", "pods")))
		}
	}
	return cmp.Or(strings.Join(parts, " "), v.say(1, "The book [has|had] lost a reservation, and [gave|had given] the address out again."))
}

// sharedRange says who gives out the addresses of one range.
func (v *voice) sharedRange() string {
	nodes := v.nodesAbout()
	if len(nodes) == 1 {
		return v.say(2, "Several networks of node %s [give|gave] out the addresses of one range%s. A range must be one network's.", nodes[0], v.ranges())
	}
	share := ""
	if v.c.Shared > document.FewShared {
		share = v.say(2, ", and [share|shared] %s", Addresses(v.c.Shared))
	}
	text := v.say(2, "%s [give|gave] out addresses of one range%s%s. A range must be one node's.", Conjoin(nodes), share, v.ranges()) + v.ofEarlier()
	if v.past {
		return text
	}
	next := v.kind("the successor of a deleted pod", "the next container")
	return text + " Before that is repaired, " + next + " may get an address that is taken, too."
}

// ranges are those that the books have.
func (v *voice) ranges() string {
	var parts []string
	for _, b := range v.c.Books {
		if part := fmt.Sprintf("%s %s (%s, network %s)", v.nodeName(b.NodeID()), b.Range, b.Kind, b.CNINetwork); b.Range != "" && slices.Contains(v.about(), b.NodeID()) {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + Conjoin(parts)
}

// machineName names a machine that may have the node name of another one: by its boot and the address of its agent.
func (v *voice) machineName(id string) string {
	if at := v.at[id]; at.IsValid() {
		return fmt.Sprintf("%s at %s", v.nodeName(id), at)
	}
	return v.nodeName(id)
}

// unreachable names the nodes that do not answer.
func (v *voice) unreachable() (nodes []string) {
	for n, b := range v.c.Holders {
		if b.Unreachable && !b.Gone {
			nodes = append(nodes, v.node(n))
		}
	}
	if len(nodes) == 0 {
		return v.nodesAbout()
	}
	return unique(nodes)
}

func nodesNamed(names []string) string { return either(len(names), "node ", "nodes ") + Conjoin(names) }

// nodeAddress says what is wrong if a pod has an address of a node.
func (v *voice) nodeAddress() string {
	switch {
	case len(v.with(document.Remove, document.ReasonLifetime)) > 0:
		return fmt.Sprintf("%s gave the node an address of the pods.", v.dynamic())
	case len(v.with(document.Remove, document.ReasonOnNode)) > 0:
		wrong := v.with(document.Remove, document.ReasonOnNode)
		giver, whom := v.giver(wrong...), v.kind("pod", "container", wrong...)
		switch v.givenOnNode() {
		case detector.GivenYes:
			return v.say(1, "A %s gave it to a %s: its range [has|had] addresses of nodes.", giver, whom)
		case detector.GivenNo:
			return fmt.Sprintf("No %s gave it to the %s: it was probably set by hand there.", giver, whom)
		}
		return fmt.Sprintf("It is not known whether a %s gave it to the %s.", giver, whom)
	default:
		return v.say(1, "It [is|was] an address of %s, too, and it [is|was] not known which had it first.", v.list(v.hosts()))
	}
}

// givenOnNode says whether a pod that has to go was given the address of a node.
func (v *voice) givenOnNode() detector.Given {
	given := detector.GivenNo
	for _, n := range v.with(document.Remove, document.ReasonOnNode) {
		switch v.c.Holders[n].Given {
		case detector.GivenYes:
			return detector.GivenYes
		case detector.GivenUnknown:
			given = detector.GivenUnknown
		}
	}
	return given
}

// hosts are the open holders that are nodes.
func (v *voice) hosts() []int {
	return slices.DeleteFunc(v.with(document.Open), func(n int) bool { return v.c.Holders[n].Evidence != detector.Host })
}

// lostEachOther is when two nodes of holders had lost each other, nil if that is not known.
func (v *voice) lostEachOther() *document.Away {
	if w := v.c.Judgement.Away; w != nil && max(w.Elder, w.Newer) < len(v.names) && min(w.Elder, w.Newer) >= 0 {
		return w
	}
	return nil
}

// away says when two nodes had lost each other.
func (v *voice) away() string {
	w := v.lostEachOther()
	if w == nil {
		return "Nodes had lost each other when the last holder came."
	}
	elder, newer := v.names[w.Elder], v.names[w.Newer]
	return v.say(2, "%s could not reach each other from %s to %s, and %s came meanwhile. If the cluster replaced the pods of node %s then, %s [is|was] left over, and %s [is|was] right.",
		Conjoin(each(w.Nodes, v.nodeName)), w.From.Format(clock), w.Until.Format(clock), newer, v.node(w.Elder), elder, newer)
}

// unknown says what is known of holders although it does not decide.
func (v *voice) unknown(open string) string {
	given := func(want detector.Given) []int {
		return slices.DeleteFunc(v.with(document.Open), func(n int) bool {
			b := v.c.Holders[n]
			return b.Given != want || b.Evidence == detector.Host
		})
	}
	text := v.say(2, "It [is|was] not known which of %s [is|was] right.", open)
	if yes := given(detector.GivenYes); len(yes) > 0 {
		text += " " + v.say(2, "%s %s given the address by the %s of %s node.", v.list(yes), either(len(yes), "was", "were each"), v.giver(yes...), either(len(yes), "its", "their"))
	}
	if no := given(detector.GivenNo); len(no) > 0 {
		text += fmt.Sprintf(" No %s gave it to %s.", v.giver(no...), v.list(no))
	}
	if missing := given(detector.GivenUnknown); len(missing) > 0 {
		text += fmt.Sprintf(" It is not known whether %s %s given the address.", v.list(missing), either(len(missing), "was", "were"))
	}
	for _, b := range v.c.Books[:min(len(v.c.Books), maxFlushes)] {
		if b.Error != "" {
			continue
		}
		whose := "no reservation of it"
		if b.Reservation != nil {
			whose = "it reserved for " + reservedFor(b.Reservation)
		}
		name := inPool(b.Kind, b.CNINetwork)
		if b.Node != "" {
			name = fmt.Sprintf("%s (network %s) of node %s", b.Kind, b.CNINetwork, v.nodeName(b.NodeID()))
		}
		text += v.say(1, " %s [has|had] %s.", name, whose)
	}
	if last := v.newest(); last >= 0 {
		text += fmt.Sprintf(" %s came last%s, but age alone does not decide.", v.names[last], v.after(last))
	}
	return text
}

// newest is the open holder that came last, negative if that is not known.
func (v *voice) newest() int {
	open := v.with(document.Open)
	if len(open) < 2 {
		return -1
	}
	slices.SortStableFunc(open, func(a, b int) int { return v.c.Holders[b].FirstSeen.Compare(v.c.Holders[a].FirstSeen) })
	last, before := v.c.Holders[open[0]], v.c.Holders[open[1]]
	if last.FoundAtStart || last.FirstSeen.Sub(before.FirstSeen) <= time.Second {
		return -1
	}
	return open[0]
}
