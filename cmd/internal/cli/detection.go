package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// detectionFailed says that a pod lost its address by duplicate address detection, and who else has it, or had it. The kernel
// does not tell whose packet it was: that of another holder, or its own one, which came back.
func detectionFailed(c document.Configured, e document.Explanation) string {
	text := cmp.Or(c.Pod.String(), c.Netns) + ": duplicate address detection failed in its kernel, which does not use the address. "
	now, before := othersWith(c, e)
	switch {
	case len(now) == 1:
		return text + "Now " + now[0] + " has the address."
	case len(now) > 1:
		return text + "Now " + Conjoin(now) + " have the address."
	case len(before) == 1:
		return text + before[0] + " was seen with the address, and has it no more."
	case len(before) > 1:
		return text + Conjoin(before) + " were seen with the address, and have it no more."
	}
	return text + "Another holder was not seen: perhaps the pod's own packet came back (a hairpin port, a loop), or one has the " +
		"address that dupip does not observe."
}

// othersWith names the holders of an address, besides that of a lost one, and those that were holders before.
func othersWith(lost document.Configured, e document.Explanation) (now, before []string) {
	own := cluster.NodeID(e.Node, e.BootID) // another node may have its name
	isOwn := func(h document.Holder) bool { return h.NodeID() == own && h.Netns == lost.Netns }
	for _, story := range e.Stories {
		if story.Network != lost.Network {
			continue
		}
		known, nodes := make(map[string]bool), nodesOfStory(story)
		is := func(h document.Holder) string { return h.NodeID() + " " + cmp.Or(h.Pod.String(), h.Netns) }
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
		had := make(map[string]document.Holder)
		for _, note := range story.Notes {
			if h := note.Holder; h != nil {
				if _, before := had[is(*h)]; showsAddress(note.Text, before) {
					had[is(*h)] = *h
				} else {
					delete(had, is(*h))
				}
			}
		}
		for id, h := range had {
			name := cmp.Or(h.Pod.String(), h.Netns)
			if known[id] || isOwn(h) || name == "" {
				continue
			}
			if h.NodeID() != own {
				name += " on " + nodes[h.NodeID()]
			}
			before = append(before, name)
		}
	}
	return distinct(now), distinct(before)
}

// showsAddress reports whether a holder has the address, and does not only forward packets with it, by a note (detector/notes.go
// has the texts) and what the earlier ones show.
func showsAddress(text string, before bool) bool {
	for _, forwards := range []string{"taken for forwarding", "for an address it does not have"} {
		if strings.Contains(text, forwards) {
			return false
		}
	}
	for _, has := range []string{"first seen: ", "evidence now ", "its kernel has the address", "answered"} {
		if rest, ok := strings.CutPrefix(text, has); ok && !strings.HasPrefix(rest, "forwarded") {
			return true
		}
	}
	return before
}
