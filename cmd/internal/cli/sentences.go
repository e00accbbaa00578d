package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

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
	return IsChoice(c) || len(labelsOf(c, isGiven)) > 1 && len(FirstRemovals(c)) == len(c.Advice.Remove) && c.Advice.Remove[0].Because == ""
}

// IsHeld reports whether nothing should be removed now.
func IsHeld(c document.Conflict) bool { return len(c.Advice.Remove) == 0 }

// Situation says which holder should be removed first and why, or why that is not known.
func Situation(c document.Conflict) string {
	a, names := c.Advice, Labels(c)
	first := names[a.Remove[0].Holder]
	switch a.Remove[0].Because {
	case "stopped":
		stopped := slices.DeleteFunc(slices.Clone(a.Remove), func(r document.Removal) bool { return r.Because != "stopped" })
		if n := len(stopped); n > 1 {
			return fmt.Sprintf("%d of %d holders are left over: the runtime says that their sandboxes have stopped.", n, len(c.Holders))
		}
		return first + " is left over: the runtime says that its sandbox has stopped."
	case "replaced":
		return first + " is left over: its pod's name belongs to a later sandbox."
	case "not-given":
		return fmt.Sprintf("%s was not given the address by any network plugin, and %s was: it was probably taken by hand.", first, Conjoin(labelsOf(c, isGiven)))
	}
	switch {
	case a.Newer != nil:
		return newer(c, names) + givenText(c)
	case a.Unknown == "host" && NodeHolder(c) >= 0:
		nodes, _ := NodesOf(c.Holders)
		return "It is an address of node " + nodes[NodeHolder(c)] + " itself."
	case a.Unknown == "away" && a.Away != nil:
		w := a.Away
		layout := strings.TrimSuffix(clock(w.From), ".000")
		return fmt.Sprintf("%s could not reach each other from %s to %s, and %s came meanwhile. If %s was given up, %s is left over from before and "+
			"%[4]s is right, although newer: \"kubectl get pods -A -o wide\" has those that should be there.",
			Conjoin(w.Nodes), w.From.Local().Format(layout), w.Until.Local().Format(layout), names[w.Newer], w.Nodes[0], names[w.Elder])
	}
	return fmt.Sprintf("It is not known which is newer: %s.", unknown(c)) + givenText(c)
}

// configuredOnly says which holders have the address configured and were not seen using it.
func configuredOnly(c document.Conflict) string {
	weak := labelsOf(c, isConfiguredOnly)
	if len(weak) == 0 {
		return ""
	}
	return fmt.Sprintf(" %s was not seen using the address in the last 5 minutes: its kernel has it configured. Perhaps it was left behind there. "+
		"Look into it before you delete it: to remove the address from it may be enough.", Conjoin(weak))
}

func isConfiguredOnly(b document.Binding) bool { return b.Evidence == detector.Configured && !b.Gone }

// newer says which holder is the newest.
func newer(c document.Conflict, names []string) string {
	a, newest := c.Advice, "the newer holder"
	if n := len(c.Holders); n > 2 {
		newest = fmt.Sprintf("the newest of %d holders", n)
	}
	text := "%s is %s: %s %s after %s."
	if a.By == "created" && c.Holders[*a.Newer].FoundAtStart && c.Holders[*a.Than].FoundAtStart {
		text = "%s is %s by its sandbox, %s %s after that of %s; who had the address first is not known."
	}
	return fmt.Sprintf(text, names[*a.Newer], newest, map[string]string{"created": "made", "firstSeen": "first seen"}[a.By],
		Span(time.Duration(a.AfterSeconds*float64(time.Second))), names[*a.Than])
}

// givenText says what the books of the holders' nodes leave open: they may know only of some of the pods whether they were given the address.
func givenText(c document.Conflict) string {
	pods := labelsOf(c, func(b document.Binding) bool { return b.Evidence != detector.Host && !b.Gone })
	known := labelsOf(c, func(b document.Binding) bool { return b.Given != detector.GivenUnknown && !b.Gone })
	switch {
	case IsChoice(c) && len(labelsOf(c, isGiven)) < len(c.Holders):
		return " It was given the address by its node; who was given it of the others is not known."
	case IsChoice(c):
		return " Each was given the address by its own node."
	case len(known) > 0 && len(known) != len(pods):
		return " It is not known who was given the address."
	}
	return ""
}

// labelsOf are the labels of those holders that are so.
func labelsOf(c document.Conflict, is func(document.Binding) bool) (labels []string) {
	for n, label := range Labels(c) {
		if is(c.Holders[n]) {
			labels = append(labels, label)
		}
	}
	return labels
}

func isGiven(b document.Binding) bool { return b.Given == detector.GivenYes }

// unknown says why it is not known which holder is newer.
func unknown(c document.Conflict) string {
	switch c.Advice.Unknown {
	case "together":
		return "they came within a second"
	case "another-order":
		return "their sandboxes were made in another order than they were seen with the address"
	}
	found := labelsOf(c, func(b document.Binding) bool { return b.FoundAtStart })
	_, several := NodesOf(c.Holders)
	switch n := len(found); {
	case (n == len(c.Holders) || n == 0) && !several:
		return "they were there before the agent"
	case n == len(c.Holders) || n == 0:
		return "they were there before their agents"
	case n == 1:
		return found[0] + " was there before its agent"
	}
	return Conjoin(found) + " were there before their agents"
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
	switch reason, who := c.Advice.Unknown, Conjoin(nodes); {
	case reason == "gone":
		return "Wait: " + Conjoin(held) + " has gone, or did not answer lately. Nothing is to be removed."
	case reason == "two-nodes" && len(nodes) > 1:
		return who + " run the same pod: probably one is a clone, or a machine that was replaced and still runs. " +
			"Shut down the one that should not run; \"dupip nodes\" has their addresses."
	case reason == "unreachable" && len(nodes) > 0:
		return who + either(len(nodes), " does not answer: wait until it does or its", " do not answer: wait until they do or their") +
			" holders are forgotten (5 minutes)."
	}
	return "Nothing is to be removed now." // an agent of another version may have another reason
}

// Consequence says what the command of a removal does, and which node says that the holder was given the address.
func Consequence(c document.Conflict, r document.Removal) string {
	who := cmp.Or(ShortLabels(c)[r.Holder], "it")
	if isGiven(c.Holders[r.Holder]) {
		nodes, _ := NodesOf(c.Holders)
		who += " (given the address according to " + nodes[r.Holder] + ")"
	}
	switch {
	case strings.HasPrefix(r.Command, "kubectl "):
		return "to end " + who + "; IPAM decides which address a successor gets"
	case strings.HasPrefix(r.Command, "crictl "):
		return "to restart " + who + ", with an address that IPAM gives it then"
	}
	return "to cut " + who + " off; it runs on without a network"
}
