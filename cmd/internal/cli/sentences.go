package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// templates are the sentences that say what to do about a conflict, and why. {a} and {b} are holders: {a} is the one that the
// sentence is about, as a rule the one to remove.
var templates = map[string]string{
	// Which holder is to be removed first, by the reason of the first removal.
	"stopped":         "{a} is left over: the runtime says that its sandbox has stopped.",
	"several-stopped": "{n} of {all} holders are left over: the runtime says that their sandboxes have stopped.",
	"replaced":        "{a} is left over: its pod's name belongs to a later sandbox.",
	"not-given":       "{a} was not given the address by any network plugin, and {b} was: it was probably taken by hand.",
	"newer":           "{a} is {newest}: {made} {time} after {b}.",
	"newer-sandbox":   "{a} is {newest} by its sandbox, made {time} after that of {b}; who had the address first is not known.",
	"given-to-newer":  " It was given the address by its node; who was given it of the others is not known.",
	"given-to-all":    " Each was given the address by its own node.",
	"given-unknown":   " It is not known who was given the address.",

	// How weak the evidence of a holder is.
	"configured": "{a} was not seen using the address in the last 5 minutes: its kernel has it configured. Perhaps it was left behind there. " +
		"Look into it before you delete it: to remove the address from it may be enough.",

	// Why it is not known which.
	"host": "It is an address of node {node} itself.",
	"away": "{nodes} could not reach each other from {from} to {until}, and {a} came meanwhile. If {node} was given up, {b} is left " +
		"over from before and {a} is right, although newer: \"kubectl get pods -A -o wide\" has those that should be there.",
	"unknown":       "It is not known which is newer: {why}.",
	"together":      "they came within a second",
	"another-order": "their sandboxes were made in another order than they were seen with the address",
	"all-found":     "they were there before {agents}",
	"some-found":    "{found} there before {agents}",

	// Why nothing is to be removed now.
	"two-nodes": "{nodes} run the same pod: probably one is a clone, or a machine that was replaced and still runs. " +
		"Shut down the one that should not run; \"dupip nodes\" has their addresses.",
	"gone":                "Wait: {held} has gone, or did not answer lately. Nothing is to be removed.",
	"unreachable":         "{nodes} does not answer: wait until it does or its holders are forgotten (5 minutes).",
	"several-unreachable": "{nodes} do not answer: wait until they do or their holders are forgotten (5 minutes).",
	"held":                "Nothing is to be removed now.", // an agent of another version may have another reason

	// What a command is for, where each may be the wrong one.
	"deletes":  "to end {a}{according}; IPAM decides which address a successor gets",
	"restarts": "to restart {a}{according}, with an address that IPAM gives it then",
	"cuts":     "to cut {a}{according} off; it runs on without a network",
}

// fill fills a template; values are names and values in turn.
func fill(template string, values ...string) string {
	for n := 0; n < len(values); n += 2 {
		values[n] = "{" + values[n] + "}"
	}
	return strings.NewReplacer(values...).Replace(templates[template])
}

// instructions say what the commands are for, by the reason of the first removal: for two holders, and for more.
var instructions = map[string][2]string{
	"":         {"Remove one of them", "Remove all but one of them"},
	"stopped":  {"Remove the one that is left over", "Remove all but one, what is left over first"},
	"replaced": {"Remove the one that is left over", "Remove all but one, what is left over first"},
	"newer":    {"Remove the newer one", "Remove all but one, the newest first"},
	"dark":     {"Remove the one without traffic", "Remove all but one, those without traffic first"},
	"pod":      {"Remove the pod", "Remove the pods"},

	"not-given": {"Remove the one that was not given it", "Remove all but one, those that were not given it first"},
}

// Instruction says what the commands of [FirstRemovals] are for.
func Instruction(c document.Conflict) string {
	all := c.Advice.Remove
	because := all[0].Because
	if isLeftOver := because == "stopped" || because == "replaced"; isLeftOver && len(FirstRemovals(c)) == len(all) {
		return "Remove them"
	}
	texts, ok := instructions[because]
	if !ok || IsChoice(c) {
		texts = instructions[""] // an agent of another version may have another reason
	}
	switch n := len(FirstRemovals(c)); {
	case len(all) == 2, n == 1:
		return texts[0]
	case c.Advice.GivenByNodes && !IsChoice(c):
		return "Remove these first"
	}
	return texts[1]
}

// FirstRemovals are the removals that end the conflict: all but the last. If it is not known which to remove first, they are
// all; and if that is known only of some, they are these.
func FirstRemovals(c document.Conflict) []document.Removal {
	all := c.Advice.Remove
	if n := slices.IndexFunc(all, func(r document.Removal) bool { return r.Because == "newer" }); c.Advice.GivenByNodes && n > 0 {
		return all[:n]
	}
	if last := all[len(all)-1]; all[0].Because == "" || last.Because == "stopped" || IsChoice(c) {
		return all
	}
	return all[:len(all)-1]
}

// IsChoice reports whether the newest holder may be the right one, because its own node's books gave it the address.
func IsChoice(c document.Conflict) bool {
	return c.Advice.GivenByNodes && c.Advice.Remove[0].Because == "newer"
}

// EachMayBeWrong reports whether the commands of [FirstRemovals] are for all holders although several were given the address:
// each needs to say what it does, and by whose word.
func EachMayBeWrong(c document.Conflict) bool {
	given := 0
	for _, b := range c.Holders {
		if b.Given == detector.GivenYes {
			given++
		}
	}
	return IsChoice(c) || given > 1 && len(FirstRemovals(c)) == len(c.Advice.Remove) && c.Advice.Remove[0].Because == ""
}

// IsHeld reports whether nothing should be removed now.
func IsHeld(c document.Conflict) bool { return len(c.Advice.Remove) == 0 }

// Situation says which holder should be removed first and why, or why that is not known.
func Situation(c document.Conflict) string {
	a, names := c.Advice, Labels(c)
	switch first := a.Remove[0]; first.Because {
	case "stopped":
		running := func(r document.Removal) bool { return r.Because != "stopped" }
		if n := len(slices.DeleteFunc(slices.Clone(a.Remove), running)); n > 1 {
			return fill("several-stopped", "n", strconv.Itoa(n), "all", strconv.Itoa(len(c.Holders)))
		}
		return fill("stopped", "a", names[first.Holder])
	case "replaced":
		return fill("replaced", "a", names[first.Holder])
	case "not-given":
		return fill("not-given", "a", names[first.Holder], "b", Conjoin(givenTo(c, names)))
	}
	switch {
	case a.Newer != nil:
		return newer(c, names)
	case a.Unknown == "host" && NodeHolder(c) >= 0:
		nodes, _ := NodesOf(c.Holders)
		return fill("host", "node", nodes[NodeHolder(c)])
	case a.Unknown == "away" && a.Away != nil:
		w := a.Away
		layout := strings.TrimSuffix(clock(w.From), ".000")
		return fill("away", "nodes", Conjoin(w.Nodes), "from", w.From.Local().Format(layout), "until", w.Until.Local().Format(layout),
			"a", names[w.Newer], "b", names[w.Elder], "node", w.Nodes[0])
	}
	return fill("unknown", "why", unknown(c)) + givenText(c, names)
}

// configuredOnly says which holders have the address configured and were not seen using it.
func configuredOnly(c document.Conflict) string {
	var weak []string
	for n, name := range Labels(c) {
		if isConfiguredOnly(c.Holders[n]) {
			weak = append(weak, name)
		}
	}
	if len(weak) == 0 {
		return ""
	}
	return " " + fill("configured", "a", Conjoin(weak))
}

func isConfiguredOnly(b document.Binding) bool { return b.Evidence == detector.Configured && !b.Gone }

// newer says which holder is the newest.
func newer(c document.Conflict, names []string) string {
	a := c.Advice
	template, newest := "newer", "the newer holder"
	if a.By == "created" && c.Holders[*a.Newer].FoundAtStart && c.Holders[*a.Than].FoundAtStart {
		template = "newer-sandbox"
	}
	if n := len(c.Holders); n > 2 {
		newest = "the newest of " + strconv.Itoa(n) + " holders"
	}
	return fill(template, "a", names[*a.Newer], "b", names[*a.Than], "newest", newest,
		"made", map[string]string{"created": "made", "firstSeen": "first seen"}[a.By],
		"time", Span(time.Duration(a.AfterSeconds*float64(time.Second)))) + givenText(c, names)
}

// givenText says what the books of the holders' nodes leave open.
func givenText(c document.Conflict, names []string) string {
	if !IsChoice(c) {
		return notAllKnown(c)
	}
	if len(givenTo(c, names)) < len(c.Holders) {
		return fill("given-to-newer")
	}
	return fill("given-to-all")
}

// givenTo names the holders that were given the address.
func givenTo(c document.Conflict, names []string) (given []string) {
	for n, b := range c.Holders {
		if b.Given == detector.GivenYes {
			given = append(given, names[n])
		}
	}
	return given
}

// notAllKnown warns that the books know only of some of the pods whether they were given the address.
func notAllKnown(c document.Conflict) string {
	known, pods := 0, 0
	for _, b := range c.Holders {
		if b.Evidence != detector.Host && !b.Gone {
			pods++
		}
		if b.Given != detector.GivenUnknown && !b.Gone {
			known++
		}
	}
	if known == 0 || known == pods {
		return ""
	}
	return fill("given-unknown")
}

// unknown says why it is not known which holder is newer.
func unknown(c document.Conflict) string {
	if reason := c.Advice.Unknown; reason == "together" || reason == "another-order" {
		return fill(reason)
	}
	var found []string
	names := Labels(c)
	for n, b := range c.Holders {
		if b.FoundAtStart {
			found = append(found, names[n])
		}
	}
	_, several := NodesOf(c.Holders)
	switch n := len(found); {
	case (n == len(c.Holders) || n == 0) && !several:
		return fill("all-found", "agents", "the agent")
	case n == len(c.Holders) || n == 0:
		return fill("all-found", "agents", "their agents")
	case n == 1:
		return fill("some-found", "found", found[0]+" was", "agents", "its agent")
	}
	return fill("some-found", "found", Conjoin(found)+" were", "agents", "their agents")
}

// NodeHolder is the index of a node that has the address itself, negative if there is none.
func NodeHolder(c document.Conflict) int {
	return slices.IndexFunc(c.Holders, func(b document.Binding) bool { return b.Evidence == detector.Host })
}

// HeldReason says why nothing should be removed now, and what to do instead.
func HeldReason(c document.Conflict) string {
	var nodes, held []string
	names, _ := NodesOf(c.Holders)
	all := Labels(c)
	for n, name := range names {
		if !slices.Contains(c.Advice.Held, n) {
			continue
		}
		held = append(held, all[n])
		if !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	reason := c.Advice.Unknown
	switch {
	case reason == "unreachable" && len(nodes) > 1:
		reason = "several-unreachable"
	case reason == "two-nodes" && len(nodes) > 1, reason == "gone", reason == "unreachable" && len(nodes) == 1:
	default:
		reason = "held"
	}
	return fill(reason, "nodes", Conjoin(nodes), "held", Conjoin(held))
}

// Consequence says what the command of a removal does, and which node says that the holder was given the address.
func Consequence(c document.Conflict, r document.Removal) string {
	template := "cuts"
	if strings.HasPrefix(r.Command, "kubectl ") {
		template = "deletes"
	} else if strings.HasPrefix(r.Command, "crictl ") {
		template = "restarts"
	}
	b, according := c.Holders[r.Holder], ""
	if b.Given == detector.GivenYes {
		nodes, _ := NodesOf(c.Holders)
		according = " (given the address according to " + nodes[r.Holder] + ")"
	}
	return fill(template, "a", cmp.Or(ShortLabels(c)[r.Holder], "it"), "according", according)
}
