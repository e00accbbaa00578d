package say

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// detectionFailures says which pods lost an address by duplicate address detection, and who else has it, or had it. The kernel does not tell
// whose packet it was: that of another holder, or its own one, which came back.
func detectionFailures(e document.Explanation) (list []string) {
	for _, c := range e.Configured {
		if text := detectionFailed(c, e); c.Lost && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

func detectionFailed(c document.Configured, e document.Explanation) string {
	text := cmp.Or(c.Pod.String(), c.Netns) + ": duplicate address detection failed in its kernel, which does not use the address. "
	now, before := othersWith(c, e)
	switch n, m := len(now), len(before); {
	case n > 0:
		return text + "Now " + Conjoin(now) + either(n, " has", " have") + " the address."
	case m > 0:
		return text + Conjoin(before) + either(m, " was seen with the address, and has it no more.", " were seen with the address, and have it no more.")
	}
	return text + "Another holder was not seen: perhaps the pod's own packet came back (a hairpin port, a loop), or one has the " +
		"address that dupip does not observe."
}

// othersWith names the holders of an address, besides that of a lost one, and those that were holders before.
func othersWith(lost document.Configured, e document.Explanation) (now, before []string) {
	own := cluster.NodeID(e.Node, e.BootID) // another node may have its name
	isOwn := func(h document.Holder) bool { return h.NodeID() == own && h.Netns == lost.Netns }
	is := func(h document.Holder) string { return h.NodeID() + " " + cmp.Or(h.Pod.String(), h.Netns) }
	for _, story := range e.Stories {
		if story.Network != lost.Network {
			continue
		}
		known := make(map[string]bool)
		nodes := merge.Names(each(slices.Concat(story.Bindings, story.Former), document.Binding.NodeID))
		for n, name := range Labels(document.Conflict{Holders: story.Bindings}) {
			b := story.Bindings[n]
			known[is(b.Holder)] = true
			switch {
			case b.Evidence == detector.Forwarded:
			case isOwn(b.Holder):
				now = append(now, fmt.Sprintf("the pod itself, by its interface %s,", cmp.Or(b.Interface, "unknown")))
			default:
				now = append(now, name)
			}
		}
		for _, b := range story.Former {
			name := cmp.Or(b.Pod.String(), b.Netns)
			if known[is(b.Holder)] || isOwn(b.Holder) || name == "" {
				continue
			}
			if b.NodeID() != own {
				name += " on " + nodes[b.NodeID()]
			}
			before = append(before, name)
		}
	}
	return distinct(now), distinct(before)
}
