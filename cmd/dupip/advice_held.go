package main

import (
	"io"
	"slices"

	"github.com/dupip/dupip/agent/api"
)

// isHeld says whether nothing is to be removed now.
func isHeld(c api.Conflict) bool { return len(c.Advice.Remove) == 0 }

// hold says why nothing is to be removed now, and what to do instead.
func hold(c api.Conflict) string {
	if c.Advice.Unknown == "two-nodes" {
		return runTwice(c) + " run the same pod: one is a clone, or a machine that was replaced and still runs. " +
			"Shut down the one that should not run; \"dupip nodes\" has their addresses."
	}
	var lost []string
	for n, b := range c.Holders {
		if name := nodesOf(c)[n]; b.Unreachable && !slices.Contains(lost, name) {
			lost = append(lost, name)
		}
	}
	switch len(lost) {
	case 0: // an agent of another version may have another reason
		return "Nothing is to be removed now."
	case 1:
		return lost[0] + " does not answer: wait until it does or its holders are forgotten (5 minutes)."
	}
	return conjoin(lost) + " do not answer: wait until they do or their holders are forgotten (5 minutes)."
}

// runTwice names the nodes that run one pod.
func runTwice(c api.Conflict) string {
	var nodes []string
	for n, b := range c.Holders {
		twin := slices.ContainsFunc(c.Holders, func(other api.Binding) bool {
			return nodeID(b) != nodeID(other) && isSame(b.Pod, other.Pod)
		})
		if name := nodesOf(c)[n]; twin && !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return conjoin(nodes)
}

// isSame says whether two holders are of one pod that runs.
func isSame(a, b *api.Pod) bool {
	return a != nil && b != nil && a.UID != "" && a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name &&
		!a.Stopped && !b.Stopped
}

// printHeld has a line for each reason to remove nothing now.
func printHeld(out io.Writer, conflicts []api.Conflict) (more int) {
	var reasons []string
	addresses := make(map[string][]string)
	for _, c := range conflicts {
		reason := hold(c)
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
