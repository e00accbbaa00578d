package say

import (
	"cmp"
	"fmt"

	"github.com/dupip/dupip/document"
)

// short is one sentence or two for lists, Events and alerts: what is wrong. It has no order to remove a holder: an Event may be read when
// another one has its name.
func (v *voice) short() string {
	for _, g := range v.groups() {
		if g.Verdict == document.Remove && g.Reason != document.ReasonGone && !v.isAboutMachines() {
			return v.shortFact(g) + v.by(g) + "."
		}
	}
	fact, order := v.causeAndOrder()
	if v.past {
		return fact
	}
	return fact + " " + order
}

// few names some holders, and is empty if there are none.
func (v *voice) few(holders []int) string {
	return few(each(holders, func(n int) string { return v.brief[n] }))
}

func few(names []string) string {
	if more := len(names) - 1; more > 1 {
		return fmt.Sprintf("%s and %d more", names[0], more)
	}
	return Conjoin(names)
}

// shortFact says what is wrong with some holders that have to go.
func (v *voice) shortFact(g group) string {
	n, who := len(g.holders), v.few(g.holders)
	switch g.Reason {
	case document.ReasonStopped:
		return v.say(n, "%s [is|are|was|were] left over: [its sandbox has|their sandboxes have|its sandbox had|their sandboxes had] stopped", who)
	case document.ReasonForgotten:
		return v.say(n, "%s [is|are|was|were] left over: the runtime [does|does|did|did] not know [it|them|it|them] any more", who)
	case document.ReasonReplaced:
		return v.say(n, "%s [is|are|was|were] left over: [its pod has|their pods have|its pod had|their pods had] a later sandbox", who)
	case document.ReasonNotGiven:
		if others := v.givenBeside(g.holders); len(others) > 0 {
			return v.say(n, "%s [has|have|had|had] an address that a network plugin gave to %s", who, v.few(others))
		}
		return v.say(n, "%s [has|have|had|had] an address that no network plugin gave [it|them|it|them]", who)
	case document.ReasonNotReserved:
		return v.say(n, "%s [has|have|had|had] lost the reservation of the address, which [is|is|was|was] reserved for %s",
			who, cmp.Or(v.few(v.with(document.Keep)), "another holder"))
	case document.ReasonNewer:
		return v.say(n, "No network plugin gave out the address, and %s came last", who)
	case document.ReasonOnNode:
		return v.say(n, "%s [has|have|had|had] the address of %s", who, cmp.Or(v.few(v.with(document.Keep, document.ReasonNode)), "a node"))
	case document.ReasonLifetime:
		return v.say(n, "%s [has|have|had|had] the address of %s by %s", who, cmp.Or(v.few(v.with(document.Keep)), "the holders"), v.dynamic())
	}
	return v.say(n, "%s [has|have|had|had] to go", who) // for a reason of another version
}

// causeAndOrder says why the address has several holders, and what to do first.
func (v *voice) causeAndOrder() (fact, order string) {
	nodes := v.nodesAbout()
	if bridges := localBridges(*v.c); bridges != nil {
		return v.say(1, "Bridge %s [has|had] the same address on %s.", bridges[0], few(nodes)), "If that is meant so, declare it in the configuration."
	}
	switch v.c.Judgement.Cause {
	case document.CauseEnding:
		return v.say(1, "Fewer than two live holders [are|were] left."), "Wait: it ends by itself."
	case document.CauseComing:
		return v.say(1, "Facts about %s [are|were] still on their way.", cmp.Or(v.few(v.coming()), "the holders")), "Wait 3 seconds."
	case document.CauseSharedRange:
		if len(nodes) == 1 {
			return v.say(1, "Several networks of node %s [give|gave] out addresses of one range.", nodes[0]), "Give each its own range before you delete a pod."
		}
		return v.say(1, "%s [give|gave] out addresses of one range.", few(nodes)), "Find the one whose range is wrong, and delete no pod before."
	case document.CauseNamesakes:
		return v.say(1, "%s [are|were] machines with one node name.", few(nodes)), "Shut down the one that should not run."
	case document.CauseClone:
		return v.say(1, "%s [run|ran] the same pod.", few(nodes)), "Shut down the node that should not run."
	case document.CauseNodeAddress:
		return v.say(1, "A pod and a node [have|had] the address, and it [is|was] not known who had it first."), "Look at the node."
	case document.CauseUnreachable:
		lost := v.unreachable()
		return v.say(len(lost), "%s [does|do|did|did] not answer.", either(len(lost), "node ", "nodes ")+few(lost)), "Wait up to 5 minutes."
	case document.CauseAway:
		if w := v.lostEachOther(); w != nil {
			return fmt.Sprintf("%s could not reach each other when %s came.", few(each(w.Nodes, v.nodeName)), v.brief[w.Newer]), "Ask the API server which pod should run."
		}
	}
	return v.say(1, "It [is|was] not known which holder [is|was] right."), "Ask the IPAM of the pods before you delete one."
}
