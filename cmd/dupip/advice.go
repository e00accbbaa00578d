package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
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
			suspected = append(suspected, cli.InNetwork(c.IP, c.Network))
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
		text := cli.AdviseRanges(ranges)
		if wrapped(out, 2, text); strings.HasSuffix(text, ":") {
			printCommand(out, "    ", cli.Drain)
		}
	}
	if len(plain) == 0 && len(advised) <= fewAdvised {
		for _, c := range advised {
			printRemovals(out, cli.InNetwork(c.IP, c.Network)+": ", c)
		}
	} else {
		printSummary(out, advised, len(plain))
	}
	removable := slices.DeleteFunc(slices.Clone(advised), cli.IsHeld)
	for _, line := range cli.AdviseNamesakes(append(removable, plain...)) {
		wrapped(out, 2, line)
	}
	if slices.ContainsFunc(advised, reusable) {
		wrapped(out, 2, "IPAM may give an address out again while its other holder has it: replace that one, too, or repair IPAM. "+
			"\"dupip explain IP\" has the commands.")
	}
	switch n := len(suspected); {
	case n > fewAdvised:
		wrapped(out, 2, cli.Addresses(n)+" are suspected, not confirmed. Wait.")
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
	if cli.IsHeld(*c) {
		return
	}
	for _, line := range cli.AdviseNamesakes([]api.Conflict{*c}) {
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
			cli.Labels(*c)[last.Holder], on([]api.Removal{last})))
		printCommands(out, *c, []api.Removal{last})
	}
}

// printRemovals prints the situation and the commands that end the conflict, or why nothing should
// be removed now. It returns the removals.
func printRemovals(out io.Writer, begin string, c api.Conflict) []api.Removal {
	if cli.IsHeld(c) {
		wrapped(out, 2, begin+cli.HeldReason(c))
		return nil
	}
	removals := cli.FirstRemovals(c)
	situation := strings.TrimSpace(cli.Situation(c) + " " + routes(c))
	wrapped(out, 2, begin+situation+" "+cli.Instruction(c)+on(removals)+":")
	printCommands(out, c, removals)
	printFlushes(out, c, removals)
	return removals
}

// hasNode reports whether a node itself has the address.
func hasNode(c api.Conflict) bool { return cli.NodeHolder(c) >= 0 }

// reusable reports whether IPAM may give the address out again, or believe that another holder has
// it, once the first holders are removed.
func reusable(c api.Conflict) bool {
	a := c.Advice
	if cli.IsHeld(c) || hasNode(c) || a.Remove[0].Because == "replaced" || a.Remove[0].Because == "not-given" {
		return false
	}
	// If the older holder's sandbox has stopped, IPAM gave the address to the newer one.
	return a.Remove[0].Because != "stopped" || a.Newer == nil || *a.Newer == a.Remove[0].Holder
}
