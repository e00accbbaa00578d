package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/api"
)

const (
	// fewAdvised is how many conflicts get advice one by one; of more, maxCommands get one line
	// each.
	fewAdvised  = 3
	maxCommands = 10
)

// printAdvice ends a list of conflicts with what to do about them.
func printAdvice(out io.Writer, document api.Conflicts) {
	var advised, plain []api.Conflict
	var suspected []string
	ranges := rangesOf(document)
	for _, c := range document.Conflicts {
		switch {
		case c.State == "suspected":
			suspected = append(suspected, inNetwork(c.IP, c.Network))
		case c.State != "confirmed" || slices.ContainsFunc(ranges, func(p api.Pair) bool { return isBetween(c, p) }):
		case c.Advice == nil:
			plain = append(plain, c)
		default:
			advised = append(advised, c)
		}
	}
	if len(ranges)+len(advised)+len(plain)+len(suspected) == 0 {
		return
	}
	fmt.Fprintln(out, "\nWhat to do:")
	if len(ranges) > 0 {
		wrapped(out, 2, adviseRanges(ranges))
	}
	if len(plain) == 0 && len(advised) <= fewAdvised {
		for _, c := range advised {
			printRemovals(out, inNetwork(c.IP, c.Network)+": ", c)
		}
	} else {
		printSummary(out, advised, len(plain))
	}
	removable := slices.DeleteFunc(slices.Clone(advised), isHeld)
	for _, line := range adviseNamesakes(append(removable, plain...)) {
		wrapped(out, 2, line)
	}
	if slices.ContainsFunc(advised, reusable) {
		wrapped(out, 2, "IPAM may give an address out again while its other holder has it: replace that one, too, or repair IPAM. "+
			"\"dupip explain IP\" has the commands.")
	}
	switch n := len(suspected); {
	case n > fewAdvised:
		wrapped(out, 2, addresses(n)+" are suspected, not confirmed. Wait.")
	case n > 0:
		wrapped(out, 2, strings.Join(suspected, ", ")+": suspected, not confirmed. Wait.")
	}
}

// printStoryAdvice ends the story of an address with what to do about its conflict.
func printStoryAdvice(out io.Writer, c *api.Conflict) {
	switch {
	case c == nil:
		return
	case c.State == "suspected":
		fmt.Fprintln(out, "\nWhat to do: wait. It is suspected, not confirmed.")
		return
	case c.State != "confirmed" || c.Advice == nil:
		return
	}
	fmt.Fprintln(out, "\nWhat to do:")
	removals := printRemovals(out, "  ", *c)
	if isHeld(*c) {
		return
	}
	for _, line := range adviseNamesakes([]api.Conflict{*c}) {
		wrapped(out, 2, "  "+line)
	}
	last := c.Advice.Remove[len(c.Advice.Remove)-1]
	switch {
	case !reusable(*c) && hasNode(*c):
		wrapped(out, 2, "  Then keep IPAM from giving out addresses of nodes.")
	case !reusable(*c):
	case len(removals) == len(c.Advice.Remove):
		wrapped(out, 2, "  IPAM may give the address out again while the other has it: replace that one, too, or repair IPAM.")
	default:
		wrapped(out, 2, fmt.Sprintf("  IPAM may give the address out again while %s has it: repair IPAM, or replace that one, too%s:",
			labels(*c)[last.Holder], on([]api.Removal{last})))
		printCommands(out, *c, []api.Removal{last})
	}
}

// printRemovals prints the situation and the commands that end the conflict, or why nothing should
// be removed now. It returns the removals.
func printRemovals(out io.Writer, begin string, c api.Conflict) []api.Removal {
	if isHeld(c) {
		wrapped(out, 2, begin+heldReason(c))
		return nil
	}
	removals := firstRemovals(c)
	situation := strings.TrimSpace(newer(c) + " " + routes(c))
	wrapped(out, 2, begin+situation+" "+instruction(c)+on(removals)+":")
	printCommands(out, c, removals)
	printFlushes(out, c, removals)
	return removals
}

// firstRemovals are the removals that end the conflict: all but the last. If it is not known which
// to remove first, they are all; and if that is known only of some, they are these.
func firstRemovals(c api.Conflict) []api.Removal {
	all := c.Advice.Remove
	if n := slices.IndexFunc(all, func(r api.Removal) bool { return r.Because == "newer" }); c.Advice.GivenByNodes && n > 0 {
		return all[:n]
	}
	if last := all[len(all)-1]; all[0].Because == "" || last.Because == "stopped" || isChoice(c) {
		return all
	}
	return all[:len(all)-1]
}

// instructions say what the commands are for, by the reason of the first removal: for two holders,
// and for more.
var instructions = map[string][2]string{
	"":         {"Remove one of them", "Remove all but one of them"},
	"stopped":  {"Remove the one that is left over", "Remove all but one, what is left over first"},
	"replaced": {"Remove the one that is left over", "Remove all but one, what is left over first"},
	"newer":    {"Remove the newer one", "Remove all but one, the newest first"},
	"dark":     {"Remove the one without traffic", "Remove all but one, those without traffic first"},
	"pod":      {"Remove the pod", "Remove the pods"},

	"not-given": {"Remove the one that took it", "Remove all but one, those that took it first"},
}

func instruction(c api.Conflict) string {
	all := c.Advice.Remove
	because := all[0].Because
	if isLeftOver := because == "stopped" || because == "replaced"; isLeftOver && len(firstRemovals(c)) == len(all) {
		return "Remove them"
	}
	texts, ok := instructions[because]
	if !ok || isChoice(c) {
		texts = instructions[""] // an agent of another version may have another reason
	}
	switch n := len(firstRemovals(c)); {
	case len(all) == 2, n == 1:
		return texts[0]
	case c.Advice.GivenByNodes && !isChoice(c):
		return "Remove these first"
	}
	return texts[1]
}

// hasNode reports whether a node itself has the address.
func hasNode(c api.Conflict) bool { return nodeHolder(c) >= 0 }

func nodeHolder(c api.Conflict) int {
	return slices.IndexFunc(c.Holders, func(b api.Binding) bool { return b.Evidence == "host" })
}

// reusable reports whether IPAM may give the address out again, or believe that another holder has
// it, once the first holders are removed.
func reusable(c api.Conflict) bool {
	a := c.Advice
	if isHeld(c) || hasNode(c) || a.Remove[0].Because == "replaced" || a.Remove[0].Because == "not-given" {
		return false
	}
	// If the older holder's sandbox has stopped, IPAM gave the address to the newer one.
	return a.Remove[0].Because != "stopped" || a.Newer == nil || *a.Newer == a.Remove[0].Holder
}

// newer says which holder is newer, or why that is not known.
func newer(c api.Conflict) string {
	a, names := c.Advice, labels(c)
	switch left := a.Remove[0]; left.Because {
	case "stopped":
		running := func(r api.Removal) bool { return r.Because != "stopped" }
		if n := len(slices.DeleteFunc(slices.Clone(a.Remove), running)); n > 1 {
			return fmt.Sprintf("%d of %d holders are left over: the runtime says that their sandboxes have stopped.", n, len(c.Holders))
		}
		return names[left.Holder] + " is left over: the runtime says that its sandbox has stopped."
	case "replaced":
		return names[left.Holder] + " is left over: its pod's name belongs to a later sandbox."
	case "not-given":
		return names[left.Holder] + " was not given the address by any network plugin, and " + conjoin(givenTo(c, names)) + " was: it was taken by hand."
	}
	if a.Newer != nil {
		how := map[string]string{"created": "made", "firstSeen": "first seen"}[a.By]
		which := "the newer holder"
		if len(c.Holders) > 2 {
			which = fmt.Sprintf("the newest of %d holders", len(c.Holders))
		}
		after := span(time.Duration(a.AfterSeconds * float64(time.Second)))
		if a.By == "created" && c.Holders[*a.Newer].FoundAtStart && c.Holders[*a.Than].FoundAtStart {
			return fmt.Sprintf("%s is %s by its sandbox, made %s after that of %s; who had the address first is not known.",
				names[*a.Newer], which, after, names[*a.Than])
		}
		return fmt.Sprintf("%s is %s: %s %s after %s.%s", names[*a.Newer], which, how, after, names[*a.Than], cmp.Or(givenByNodes(c, names), notAllKnown(c)))
	}
	if a.Unknown == "host" && hasNode(c) {
		nodes, _ := nodesOf(c.Holders)
		return "It is an address of node " + nodes[nodeHolder(c)] + " itself."
	}
	if a.Unknown == "away" && a.Away != nil {
		return awayText(a.Away, names)
	}
	return "Which is newer is not known: " + unknown(c) + "." + notAllKnown(c)
}

// awayText says that the elder holder may be the orphan of a node that was given up.
func awayText(w *api.Away, names []string) string {
	return fmt.Sprintf("%s could not reach each other from %s to %s, and %s came meanwhile. If %s was given up, %s is left over from "+
		"before and %s is right, although newer: \"kubectl get pods -A -o wide\" has those that should be there.",
		conjoin(w.Nodes), w.From.Local().Format("15:04:05"), w.Until.Local().Format("15:04:05"), names[w.Newer],
		w.Nodes[0], names[w.Elder], names[w.Newer])
}

// givenTo names the holders that were given the address.
func givenTo(c api.Conflict, names []string) (given []string) {
	for n, b := range c.Holders {
		if b.Given != nil && *b.Given {
			given = append(given, names[n])
		}
	}
	return given
}

// isChoice reports whether the newest holder may be the right one, because its own node's books gave it the address.
func isChoice(c api.Conflict) bool {
	return c.Advice.GivenByNodes && c.Advice.Remove[0].Because == "newer"
}

// givenByNodes says which nodes' books have given the address to their pods: each is right about its own.
func givenByNodes(c api.Conflict, names []string) string {
	if !isChoice(c) {
		return ""
	}
	given, all := givenTo(c, names), len(c.Holders)
	if len(given) < all {
		return " It was given the address by its node; who was given it of the others is not known."
	}
	var by []string
	nodes, _ := nodesOf(c.Holders)
	for n, name := range shortLabels(c) {
		by = append(by, name+" according to "+nodes[n])
	}
	return " All were given the address: " + conjoin(by) + ". The one that is removed comes back with another one."
}

// notAllKnown warns that the books know only of some of the pods whether they were given the address.
func notAllKnown(c api.Conflict) string {
	known, pods := 0, 0
	for _, b := range c.Holders {
		if b.Evidence != "host" && !b.Gone {
			pods++
		}
		if b.Given != nil && !b.Gone {
			known++
		}
	}
	if known == 0 || known == pods {
		return ""
	}
	return " It is not known who was given the address."
}

// unknown says why it is not known which holder is newer.
func unknown(c api.Conflict) string {
	switch c.Advice.Unknown {
	case "together":
		return "they came within a second"
	case "another-order":
		return "their sandboxes were made in another order than they were seen with the address"
	}
	var found []string
	names := labels(c)
	for n, b := range c.Holders {
		if b.FoundAtStart {
			found = append(found, names[n])
		}
	}
	if len(found) == len(c.Holders) || len(found) == 0 {
		if _, several := nodesOf(c.Holders); several {
			return "they were there before their agents"
		}
		return "they were there before the agent"
	}
	were, agents := "were", "their agents"
	if len(found) == 1 {
		were, agents = "was", "its agent"
	}
	return fmt.Sprintf("%s %s there before %s", conjoin(found), were, agents)
}

func heldHolders(c api.Conflict) (held []string) {
	names := labels(c)
	for _, n := range c.Advice.Held {
		held = append(held, names[n])
	}
	return held
}

// isHeld reports whether nothing should be removed now.
func isHeld(c api.Conflict) bool { return len(c.Advice.Remove) == 0 }

// heldReason says why nothing should be removed now, and what to do instead.
func heldReason(c api.Conflict) string {
	var nodes []string
	names, _ := nodesOf(c.Holders)
	for n, name := range names {
		if slices.Contains(c.Advice.Held, n) && !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	switch reason := c.Advice.Unknown; {
	case reason == "two-nodes" && len(nodes) > 1:
		return conjoin(nodes) + " run the same pod: one is a clone, or a machine that was replaced and still runs. " +
			"Shut down the one that should not run; \"dupip nodes\" has their addresses."
	case reason == "gone":
		return "Wait: " + conjoin(heldHolders(c)) + " has gone or is going. Nothing is to be removed."
	case reason == "unreachable" && len(nodes) == 1:
		return nodes[0] + " does not answer: wait until it does or its holders are forgotten (5 minutes)."
	case reason == "unreachable" && len(nodes) > 1:
		return conjoin(nodes) + " do not answer: wait until they do or their holders are forgotten (5 minutes)."
	}
	return "Nothing is to be removed now." // an agent of another version may have another reason
}
