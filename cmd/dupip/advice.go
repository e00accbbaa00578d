package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/api"
)

const (
	// fewAdvised is how many conflicts are advised on one by one; of more, maxCommands get
	// one line each.
	fewAdvised  = 3
	maxCommands = 10
)

// printAdvice ends a list of conflicts with what to do about them.
func printAdvice(out io.Writer, document api.Conflicts) {
	var advised, plain, suspected []api.Conflict
	ranges := rangesOf(document)
	for _, c := range document.Conflicts {
		switch {
		case c.State == "suspected":
			suspected = append(suspected, c)
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
			if isHeld(c) {
				wrapped(out, 2, inNetwork(c.IP, c.Network)+": "+heldReason(c))
				continue
			}
			removals := first(c)
			wrapped(out, 2, inNetwork(c.IP, c.Network)+": "+situation(c)+" "+instruction(c)+at(removals)+":")
			printCommands(out, c, removals)
			printFlushes(out, c, removals)
		}
	} else {
		printSummary(out, advised, len(plain))
	}
	removable := slices.DeleteFunc(slices.Clone(advised), isHeld)
	for _, line := range namesakes(append(removable, plain...)) {
		wrapped(out, 2, line)
	}
	if len(advised) > 0 && slices.ContainsFunc(advised, reusable) {
		wrapped(out, 2, "IPAM may give an address out again while its other holder has it: replace that one, too, or repair IPAM. "+
			"\"dupip explain IP\" has the commands.")
	}
	switch n := len(suspected); {
	case n == 0:
	case n <= fewAdvised:
		var ips []string
		for _, c := range suspected {
			ips = append(ips, inNetwork(c.IP, c.Network))
		}
		wrapped(out, 2, strings.Join(ips, ", ")+": suspected, not confirmed. Wait.")
	default:
		wrapped(out, 2, addresses(n)+" are suspected, not confirmed. Wait.")
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
	if isHeld(*c) {
		wrapped(out, 2, "  "+heldReason(*c))
		return
	}
	removals := first(*c)
	wrapped(out, 2, "  "+situation(*c)+" "+instruction(*c)+at(removals)+":")
	printCommands(out, *c, removals)
	printFlushes(out, *c, removals)
	for _, line := range namesakes([]api.Conflict{*c}) {
		wrapped(out, 2, "  "+line)
	}
	if !reusable(*c) {
		if holdsItself(*c) {
			wrapped(out, 2, "  Then keep IPAM from giving out addresses of nodes.")
		}
		return
	}
	last := c.Advice.Remove[len(c.Advice.Remove)-1]
	if len(removals) == len(c.Advice.Remove) {
		wrapped(out, 2, "  IPAM may give the address out again while the other has it: replace that one, too, or repair IPAM.")
		return
	}
	wrapped(out, 2, fmt.Sprintf("  IPAM may give the address out again while %s has it: repair IPAM, or replace that one, too%s:",
		labels(*c)[last.Holder], at([]api.Removal{last})))
	printCommands(out, *c, []api.Removal{last})
}

// first are the removals that end the conflict: of all but the last. If it is not known where
// to begin, all are.
func first(c api.Conflict) []api.Removal {
	all := c.Advice.Remove
	if last := all[len(all)-1]; all[0].Because == "" || last.Because == "stopped" {
		return all
	}
	return all[:len(all)-1]
}

// instruction says what the commands are for.
func instruction(c api.Conflict) string {
	one := len(c.Advice.Remove) == 2
	switch c.Advice.Remove[0].Because {
	case "stopped", "replaced":
		if len(first(c)) == len(c.Advice.Remove) {
			return "Remove them"
		}
		if one {
			return "Remove the one that is left over"
		}
		return "Remove all but one, what is left over first"
	case "newer":
		if one {
			return "Remove the newer one"
		}
		return "Remove all but one, the newest first"
	case "dark":
		if one {
			return "Remove the one without traffic"
		}
		return "Remove all but one, those without traffic first"
	case "pod":
		if one {
			return "Remove the pod"
		}
		return "Remove the pods"
	}
	if one {
		return "Remove one of them"
	}
	return "Remove all but one of them"
}

// holdsItself says whether a node itself has the address.
func holdsItself(c api.Conflict) bool {
	return slices.ContainsFunc(c.Holders, func(b api.Binding) bool { return b.Evidence == "host" })
}

// reusable says whether the address may be taken for free, or for another's, once the first
// holders are removed.
func reusable(c api.Conflict) bool {
	a := c.Advice
	if isHeld(c) {
		return false
	}
	switch a.Remove[0].Because {
	case "replaced":
		return false
	case "stopped": // the later one has it by the books
		return !holdsItself(c) && (a.Newer == nil || *a.Newer == a.Remove[0].Holder)
	}
	return !holdsItself(c)
}

// at says on which node the commands are to be given, if that is one for all.
func at(removals []api.Removal) string {
	on := removals[0].On
	if on == "" || slices.ContainsFunc(removals, func(r api.Removal) bool { return r.On != on }) {
		return ""
	}
	return ", on node " + loginNode(removals[0])
}

// loginNode is the node that a command is for, with its address where only its boot tells it from
// another: one cannot log in to a boot.
func loginNode(r api.Removal) string {
	if name, ok := strings.CutSuffix(r.On, ")"); ok && r.Address != "" && plainNode(r.On) != r.On {
		return name + ", " + r.Address + ")"
	}
	return r.On
}

// printCommands prints what removes some holders of a conflict, each on lines of its own: they
// are for a shell, and nothing else is to come there with them.
func printCommands(out io.Writer, c api.Conflict, removals []api.Removal) {
	const most = 8
	together := at(removals) != ""
	for _, r := range removals[:min(len(removals), most)] {
		switch {
		case r.Command == "":
			wrapped(out, 6, fmt.Sprintf("    No command: %s has no name that is fit for one.", labels(c)[r.Holder]))
			continue
		case r.On != "" && !together:
			fmt.Fprintln(out, clip("  on node "+loginNode(r)+":", screen))
		case !together && len(removals) > 1 && slices.ContainsFunc(removals, func(r api.Removal) bool { return r.On != "" }):
			fmt.Fprintln(out, "  anywhere:")
		}
		printCommand(out, "    ", r.Command)
	}
	if more := len(removals) - most; more > 0 {
		fmt.Fprintf(out, "    and %d more\n", more)
	}
}

// printCommand prints a command. A long one goes on in a further line, as the shell knows it.
func printCommand(out io.Writer, head, command string) {
	if n := strings.LastIndex(command, " "); len(head)+len(command) > screen && n > 0 {
		fmt.Fprintln(out, head+command[:n]+" \\")
		head, command = "      ", command[n+1:]
	}
	fmt.Fprintln(out, head+command)
}

// situation tells which holder is newer and where packets go.
func situation(c api.Conflict) string {
	text := []string{newer(c)}
	if r := routes(c); r != "" {
		text = append(text, r)
	}
	return strings.Join(text, " ")
}

func newer(c api.Conflict) string {
	a, names := c.Advice, labels(c)
	switch left := a.Remove[0]; left.Because {
	case "stopped":
		if n := count(a.Remove, "stopped"); n > 1 {
			return fmt.Sprintf("%d of %d holders are left over: the runtime says that their sandboxes have stopped.", n, len(c.Holders))
		}
		return names[left.Holder] + " is left over: the runtime says that its sandbox has stopped."
	case "replaced":
		return names[left.Holder] + " is left over: its pod's name belongs to a later sandbox."
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
		return fmt.Sprintf("%s is %s: %s %s after %s.", names[*a.Newer], which, how, after, names[*a.Than])
	}
	if a.Unknown == "host" {
		for n, b := range c.Holders {
			if b.Evidence == "host" {
				return "It is an address of node " + nodesOf(c)[n] + " itself."
			}
		}
	}
	return "Which is newer is not known: " + unknown(c) + "."
}

// count is how many removals have a reason.
func count(removals []api.Removal, because string) (n int) {
	for _, r := range removals {
		if r.Because == because {
			n++
		}
	}
	return n
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
		if len(nodeNames(c.Holders)) == 1 {
			return "they were there before the agent"
		}
		return "they were there before their agents"
	}
	were, agents := "were", "their agents"
	if len(found) == 1 {
		were, agents = "was", "its agent"
	}
	return fmt.Sprintf("%s %s there before %s", conjoin(found), were, agents)
}
