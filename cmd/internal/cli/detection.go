package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dupip/dupip/agent/api"
)

// detectionFailed says that a pod lost its address by duplicate address detection, and who else has it, or had it. The kernel
// does not tell whose packet it was: that of another holder, or its own one, which came back.
func detectionFailed(c api.Configured, e api.Explanation) string {
	text := cmp.Or(PodName(c.Pod), c.Netns) + ": duplicate address detection failed in its kernel, which does not use the address. "
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
func othersWith(lost api.Configured, e api.Explanation) (now, before []string) {
	isOwn := func(node, netns string) bool { return node == e.Node && netns == lost.Netns }
	for _, story := range e.Stories {
		if story.Network != lost.Network {
			continue
		}
		type holder struct{ node, name string }
		known := make(map[holder]bool)
		nodes, _ := NodesOf(story.Bindings)
		for n, name := range Labels(api.Conflict{Holders: story.Bindings}) {
			b := story.Bindings[n]
			known[holder{nodes[n], Who(b)}] = true
			switch {
			case b.Evidence == "forwarded":
			case isOwn(b.Node, b.Netns):
				now = append(now, fmt.Sprintf("the pod itself, by its interface %s,", cmp.Or(b.Interface, "unknown")))
			default:
				now = append(now, name)
			}
		}
		holderOf := func(note api.Note) holder {
			return holder{cmp.Or(note.HolderNode, note.Node), cmp.Or(PodName(note.Pod), note.Netns)}
		}
		had := make(map[holder]bool)
		for _, note := range story.Notes {
			h := holderOf(note)
			had[h] = showsAddress(note.Text, had[h])
		}
		for _, note := range story.Notes {
			h := holderOf(note)
			if h.name == "" || !had[h] || known[h] || isOwn(h.node, note.Netns) {
				continue
			}
			known[h] = true
			name := h.name
			if h.node != e.Node {
				name += " on " + h.node
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
