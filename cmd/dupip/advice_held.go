package main

import (
	"io"
	"slices"

	"github.com/dupip/dupip/agent/api"
)

// isHeld says whether nothing is to be removed now.
func isHeld(c api.Conflict) bool { return len(c.Advice.Remove) == 0 }

// heldReason says why nothing is to be removed now, and what to do instead.
func heldReason(c api.Conflict) string {
	var nodes []string
	for n, name := range nodesOf(c) {
		if slices.Contains(c.Advice.Held, n) && !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	switch reason := c.Advice.Unknown; {
	case reason == "two-nodes" && len(nodes) > 1:
		return conjoin(nodes) + " run the same pod: one is a clone, or a machine that was replaced and still runs. " +
			"Shut down the one that should not run; \"dupip nodes\" has their addresses."
	case reason == "unreachable" && len(nodes) == 1:
		return nodes[0] + " does not answer: wait until it does or its holders are forgotten (5 minutes)."
	case reason == "unreachable" && len(nodes) > 1:
		return conjoin(nodes) + " do not answer: wait until they do or their holders are forgotten (5 minutes)."
	}
	return "Nothing is to be removed now." // an agent of another version may have another reason
}

// printHeld has a line for each reason to remove nothing now.
func printHeld(out io.Writer, conflicts []api.Conflict) (more int) {
	var reasons []string
	addresses := make(map[string][]string)
	for _, c := range conflicts {
		reason := heldReason(c)
		if addresses[reason] == nil {
			if len(reasons) == maxCommands {
				more++
				continue
			}
			reasons = append(reasons, reason)
		}
		addresses[reason] = append(addresses[reason], inNetwork(c.IP, c.Network))
	}
	for _, reason := range reasons {
		wrapped(out, 2, list(addresses[reason], maxListed)+": "+reason)
	}
	return more
}
