package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// wiped is how many pods must have lost reservations at once for a store to be called wiped.
const wiped = 3

// text says which holders have to go or stay and why, and why there are several.
func (v *voice) text() string {
	parts := []string{Acknowledged(v.c.Acknowledged)}
	for _, g := range v.groups() {
		parts = append(parts, v.verdict(g))
	}
	if v.c.Judgement.Confidence == document.Likely && !v.past {
		parts = append(parts, "This is likely, not certain.")
	}
	parts = append(parts, v.cause(), v.unseen())
	if !v.past && v.c.Judgement.Cause != document.CauseTwoNodes { // each of the two sends to itself
		parts = append(parts, v.routes())
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, " ")
}

// Acknowledged says who works on the conflict. The time is UTC, because people elsewhere read it, too.
func Acknowledged(a *document.Ack) string {
	if a == nil {
		return ""
	}
	text := fmt.Sprintf("Acknowledged by %s until %s", a.By, a.Until().UTC().Format("Jan 2 15:04 UTC"))
	if a.Why != "" {
		text += ": " + strings.TrimRight(a.Why, ".")
	}
	return text + "."
}

// verdict says which holders have to go or stay, and by which fact; it is empty for open ones, which the cause is about.
func (v *voice) verdict(g group) string {
	n, who := len(g.holders), v.list(g.holders)
	text := ""
	switch g.Reason {
	case document.ReasonGone:
		text = v.say(n, "%s [has|have|had|had] gone, or [does|do|did|did] not answer any more", who)
	case document.ReasonStopped:
		text = v.say(n, "%s [is|are|was|were] left over: the runtime [says|says|said|said] that "+
			"[its sandbox has|their sandboxes have|its sandbox had|their sandboxes had] stopped, and no process [runs|runs|ran|ran] in [it|them|it|them]", who)
	case document.ReasonForgotten:
		text = v.say(n, "%s [is|are|was|were] left over: the runtime [does|does|did|did] not know [it|them|it|them] any more, "+
			"and no process [runs|runs|ran|ran] in [it|them|it|them]", who)
	case document.ReasonReplaced:
		text = v.say(n, "%s [is|are|was|were] left over: a later sandbox with the same pod name [runs|ran] on node %s", who, v.node(g.Holder))
	case document.ReasonNotGiven:
		return v.notGiven(g, who)
	case document.ReasonNotReserved:
		text = v.say(n, "%s [was|were|had been|had been] given the address, but %s", who, v.reservedForOther(g.Holder))
	case document.ReasonUnlisted:
		text = v.say(n, "The API server [does|does|did|did] not have %s any more", who)
	case document.ReasonNewer:
		text = v.say(n, "No %s gave the address to anybody, and %s came last%s", v.giver(), who, v.after(g.Holder))
	case document.ReasonOnNode:
		text = v.say(n, "%s [has|have|had|had] the address of %s", who, v.owner())
	case document.ReasonLifetime:
		text = v.lifetime(g.Holder)
	case document.ReasonGiven:
		if text = v.say(n, "%s [stays|stay|was right|were right]", who); len(v.with(document.Remove, document.ReasonNotGiven)) == 0 {
			text += ": a " + v.giver(g.holders...) + " gave it the address"
		}
	case document.ReasonReserved:
		text = v.say(n, "%s [stays|stay|was right|were right]: it [has|has|had|had] the reservation", who)
	case document.ReasonNode:
		text = v.say(n, "%s [stays|stay|was right|were right]: the address [is|is|was|was] its own", who)
	case document.ReasonOlder:
		text = v.say(n, "%s [stays|stay|came first|came first]", who)
	case document.ReasonLast:
		if v.c.Judgement.Cause != document.CauseEnding {
			text = v.say(n, "%s [stays: it is|stay: they are|was|were] the only live holder", who)
		}
	}
	if text == "" {
		return ""
	}
	return text + v.by(g) + "."
}

// by says whose word decides against holders, if it is not their own node's.
func (v *voice) by(g group) string {
	if g.By == "" {
		return ""
	}
	return ", as " + v.nodeName(g.By) + " says"
}

// notGiven says that nobody gave holders the address, and who was given it, by whose word.
func (v *voice) notGiven(g group, who string) string {
	giver := v.giver(g.holders...)
	text := v.say(1, "No %s gave %s the address%s", giver, who, v.givenOthers(g.holders))
	others := v.givenBeside(g.holders)
	if len(others) == 0 {
		return text + "."
	}
	one := "one"
	if other := v.giver(others...); other != giver {
		one = "a " + other
	}
	but := ", but"
	if g.By != "" {
		but += v.by(g) + ","
	}
	return text + but + " " + one + " gave it to " + v.list(others) + "."
}

// givenBeside are the other holders that were given the address.
func (v *voice) givenBeside(holders []int) (others []int) {
	for n, b := range v.c.Holders {
		if b.Given == detector.GivenYes && !b.Gone && b.Evidence != detector.Host && !slices.Contains(holders, n) {
			others = append(others, n)
		}
	}
	return others
}

// owner names the nodes that have the address themselves.
func (v *voice) owner() string {
	if keep := v.with(document.Keep, document.ReasonNode); len(keep) > 0 {
		return v.list(keep) + v.machineOf(keep[0])
	}
	return "a node"
}

// givenOthers says which other addresses holders were given.
func (v *voice) givenOthers(holders []int) string {
	var others []string
	for _, n := range holders {
		if f := v.c.Holders[n].Facts; f != nil {
			for _, ip := range f.GivenOthers {
				others = append(others, ip.String())
			}
		}
	}
	if len(others) == 0 {
		return ""
	}
	return v.say(len(holders), " (%s gave [it|them|it|them] %s)", v.kind("CNI", "the engine", holders...), Conjoin(distinct(others)))
}

// reservedForOther says which book of a holder's node has the address reserved for another one.
func (v *voice) reservedForOther(n int) string {
	if b := v.clusterBook(); b != nil && v.isByCluster(n) {
		return v.say(1, "%s [has|had] reserved it for %s", b.Kind, reservedFor(b.Reservation))
	}
	id := v.nodeID(n)
	own := slices.DeleteFunc(slices.Clone(v.c.Books), func(b document.Book) bool { return b.NodeID() != id || b.Error != "" })
	i := max(slices.IndexFunc(own, func(b document.Book) bool { return b.Reservation != nil }), 0)
	if len(own) == 0 || own[i].Reservation == nil {
		return v.say(1, "the book of node %s [has|had] reserved it for another one", v.node(n))
	}
	r := *own[i].Reservation
	for _, other := range v.with(document.Keep) { // the other sandboxes that the book has it for are dead
		if p := v.c.Holders[other].Pod; p != nil && slices.Contains(r.Sandboxes, p.Sandbox) {
			r.Pod, r.Sandboxes = p, nil
		}
	}
	return v.say(1, "%s (network %s) of node %s [has|had] reserved it for %s", own[i].Kind, own[i].CNINetwork, v.node(n), reservedFor(&r))
}

// after says how much later than the others a holder came, empty if that is not known.
func (v *voice) after(n int) string {
	last := v.c.Holders[n]
	before := -1
	for _, j := range v.judged {
		b := v.c.Holders[j.Holder]
		if j.Holder != n && !b.Gone && (before < 0 || b.FirstSeen.After(v.c.Holders[before].FirstSeen)) {
			before = j.Holder
		}
	}
	if before < 0 || last.FoundAtStart {
		return ""
	}
	gap := last.FirstSeen.Sub(v.c.Holders[before].FirstSeen)
	if gap < time.Second {
		return ""
	}
	return fmt.Sprintf(", first seen %s after %s", Span(gap), v.names[before])
}

// lifetime says why a node's address is wrong.
func (v *voice) lifetime(n int) string {
	m := machine(v.c.Holders[n])
	text := v.say(1, "%s [has|had] the address with a lifetime (%s)%s", v.names[n], v.dynamic(), v.machineOf(n))
	for _, keep := range v.with(document.Keep) {
		if gap := m.Since.Sub(v.c.Holders[keep].FirstSeen); !m.Since.IsZero() && gap > 0 {
			text += fmt.Sprintf(", and got it %s after %s", Span(gap), v.names[keep])
		}
	}
	return text
}

// dynamic is what gives nodes addresses with a lifetime.
func (v *voice) dynamic() string {
	if v.c.IP.Is4() {
		return "DHCP"
	}
	return "SLAAC or DHCPv6"
}

// machine describes the address of a node, the zero value if that is not known.
func machine(b document.Binding) document.Machine {
	return *cmp.Or(cmp.Or(b.Facts, new(document.Facts)).Machine, new(document.Machine))
}

func (v *voice) machineOf(n int) string {
	switch m := machine(v.c.Holders[n]); {
	case m.Device == "":
		return ""
	case m.Dynamic:
		return " on device " + m.Device
	default:
		return " (permanent, on device " + m.Device + ")"
	}
}

// unseen says which holders have the address configured and were not seen using it.
func (v *voice) unseen() string {
	var weak []int
	for _, j := range v.judged {
		b := v.c.Holders[j.Holder]
		if IsConfiguredOnly(b) && (j.Verdict == document.Open || j.Reason == document.ReasonNotGiven || j.Reason == document.ReasonNewer) {
			weak = append(weak, j.Holder)
		}
	}
	if len(weak) == 0 || v.past {
		return ""
	}
	return v.say(len(weak), "%s [was|were|had been|had been] not seen using the address lately, but [has|have|had|had] it configured.", v.list(weak))
}

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
			return v.say(n, "%s [has|have|had|had] an address that a %s gave to %s", who, v.giver(others...), v.few(others))
		}
		return v.say(n, "%s [has|have|had|had] an address that no %s gave [it|them|it|them]", who, v.giver(g.holders...))
	case document.ReasonNotReserved:
		return v.say(n, "%s [has|have|had|had] lost the reservation of the address, which [is|is|was|was] reserved for %s",
			who, cmp.Or(v.few(v.with(document.Keep)), "another holder"))
	case document.ReasonUnlisted:
		return v.say(n, "The API server [does|does|did|did] not have %s any more", who)
	case document.ReasonNewer:
		return v.say(n, "No %s gave out the address, and %s came last", v.giver(), who)
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
		if text := v.doubled(); text != "" {
			return text, "Wait 30 seconds."
		}
		return v.say(1, "Facts about %s [are|were] still on their way.", cmp.Or(v.few(v.coming()), "the holders")), "Wait 3 seconds."
	case document.CauseSharedRange:
		if len(nodes) == 1 {
			return v.say(1, "Several networks of node %s [give|gave] out addresses of one range.", nodes[0]), "Give each its own range before you delete a pod."
		}
		return v.say(1, "%s [give|gave] out addresses of one range.", few(nodes)), "Find the one whose range is wrong, and " + v.kind("delete no pod", "remove no container") + " before."
	case document.CauseNamesakes:
		return v.say(1, "%s [are|were] machines with one node name.", few(nodes)), "Shut down the one that should not run."
	case document.CauseClone:
		return v.say(1, "%s [run|ran] the same %s.", few(nodes), v.kind("pod", "container")), "Shut down the node that should not run."
	case document.CauseNodeAddress:
		return v.say(1, "A pod and a node [have|had] the address, and it [is|was] not known who had it first."), "Look at the node."
	case document.CauseTwoNodes:
		return v.say(1, "%s [have|had] the address for themselves, and both [answer|answered] for it.", few(nodes)), "Find out which one should have it."
	case document.CauseDeleted:
		return fmt.Sprintf("The Node %s was deleted.", few(nodes)), "Shut down its machine."
	case document.CauseUnreachable:
		lost := v.unreachable()
		return v.say(len(lost), "%s [does|do|did|did] not answer.", either(len(lost), "node ", "nodes ")+few(lost)), "Wait up to 5 minutes."
	case document.CauseAway:
		if w := v.lostEachOther(); w != nil {
			return fmt.Sprintf("%s could not reach each other when %s came.", few(each(w.Nodes, v.nodeName)), v.brief[w.Newer]), "Ask the API server which pod should run."
		}
	}
	ask := v.kind("the IPAM of the pods before you delete one", "those who made the containers before you remove one")
	return v.say(1, "It [is|was] not known which holder [is|was] right."), "Ask " + ask + "."
}
