package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Explanation prints what is known of an address.
func (p *Printer) Explanation(e document.Explanation) {
	p.Unknown(e)
	for n, story := range e.Stories {
		if n > 0 {
			p.println()
		}
		p.story(story)
	}
	p.Configured(e)
	p.Books(e)
	p.causes(e)
	for _, story := range e.Stories {
		p.StoryAdvice(story.Conflict)
	}
	if len(e.Missing) > 0 {
		p.println()
	}
	p.Coverage(e.Coverage, "stories")
}

// Unknown says why there is no story of an address, if there is none.
func (p *Printer) Unknown(e document.Explanation) {
	switch {
	case len(e.Stories) > 0:
	case e.NeverCompared != "":
		p.wrapped(0, fmt.Sprintf("%s is never compared: %s addresses are no pod's own. Many may have the same one.", e.IP, e.NeverCompared))
	default:
		where := "on node " + e.Node
		if n := e.Asked - len(e.Missing); n > 1 || n == 1 && e.BootID == "" {
			where = "on any of " + Plural(n, "node", "nodes")
		}
		p.printf("%s was not seen %s.\n", e.IP, where)
	}
}

// Configured prints where the kernel lists the address.
func (p *Printer) Configured(e document.Explanation) {
	if len(e.Configured) == 0 {
		return
	}
	on := ""
	if e.Asked > 1 {
		on = " on node " + e.Node
	}
	p.printf("\nConfigured%s, as the kernel lists it:\n", on)
	for _, c := range e.Configured {
		text := map[string]string{
			"peer":      "on the pod's end of " + c.Interface,
			"loopback":  "on a loopback device behind " + c.Interface,
			"elsewhere": "on another device behind " + c.Interface + ", which does not make it a holder",
		}[c.Device]
		switch {
		case c.Lost:
			text += ", not in use: its duplicate address detection failed"
		case !c.Settled:
			text += ", still tentative"
		}
		if c.Unanswered > 0 {
			text += fmt.Sprintf(", probed %s without an answer", Plural(c.Unanswered, "time", "times"))
		}
		p.wrapped(4, fmt.Sprintf("  %s: %s", cmp.Or(c.Pod.String(), c.Netns), text))
	}
}

// Verdict prints what the nodes have decided about an address.
func (p *Printer) Verdict(story document.Story) {
	where := either(len(story.Nodes), "node", "nodes")
	p.wrapped(2, fmt.Sprintf("%s in network %s on %s %s", story.IP, story.Network, where, List(story.Nodes)))
	p.wrapped(2, fmt.Sprintf("Verdict: %s.", story.Verdict))
	for _, v := range story.Verdicts {
		p.wrapped(4, fmt.Sprintf("  %s: %s.", List(v.Nodes), v.Verdict))
	}
	if c := story.Conflict; c != nil {
		kind := "Conflict"
		if c.Drill {
			kind = "Drill"
		}
		text := fmt.Sprintf("%s %s, %s: %s", kind, c.ID, c.Scope, p.Paint(c.State.String()))
		switch {
		case !c.ResolvedAt.IsZero():
			text += fmt.Sprintf(" %s ago, was open for %s", Age(c.ResolvedAt), Span(c.ResolvedAt.Sub(c.SuspectedAt)))
		case !c.ConfirmedAt.IsZero():
			text += fmt.Sprintf(" %s after the second holder was seen", Span(c.ConfirmedAt.Sub(c.SecondSeen)))
		}
		p.wrapped(2, text)
		if c.State == detector.Confirmed && !c.Drill {
			p.wrapped(2, "  If several are meant to have it (anycast, a virtual IP), list it under \"shared\" in the configuration.")
		}
	}
}

func (p *Printer) story(story document.Story) {
	p.Verdict(story)
	several := len(story.Nodes) > 1
	p.println("\nHolders, the oldest first:")
	nodes, severalNodes := NodesOf(story.Bindings)
	for n, b := range story.Bindings {
		name := DescribeHolder(b)
		if several || severalNodes || !slices.Contains(story.Nodes, b.Node) {
			name += " on node " + nodes[n]
		}
		p.wrapped(4, "  "+name)
		weak := ""
		if isConfiguredOnly(b) {
			weak = ": its kernel has the address; it was not seen using it lately"
		}
		p.wrapped(6, fmt.Sprintf("      interface %s, MAC %s, evidence %s%s", cmp.Or(b.Interface, "unknown"), cmp.Or(b.MAC.String(), "unknown"), b.Evidence, weak))
		if b.Pod != nil {
			p.wrapped(6, fmt.Sprintf("      netns %s, pod UID %s", b.Netns, b.Pod.UID))
		}
		p.wrapped(6, fmt.Sprintf("      first seen %s (%s ago), last seen %s ago",
			b.FirstSeen.Local().Format("2006-01-02 15:04:05.000"), Age(b.FirstSeen), Age(b.LastSeen)))
	}
	if len(story.Bindings) == 0 {
		p.println("  none now")
	}
	if len(story.Former) > 0 {
		p.println("\nWho had it before, the last one first:")
		p.Former(story)
	}
	if len(story.Notes) == 0 {
		return
	}
	p.println("\nWhat happened:")
	layout := clock(story.Notes[0].At)
	for n, text := range Notes(story) {
		p.wrapped(3+len(layout), fmt.Sprintf("  %s  %s", story.Notes[n].At.Local().Format(layout), text))
	}
}

// Former prints who had the address before.
func (p *Printer) Former(story document.Story) {
	nodes, several := NodesOf(slices.Concat(story.Former, story.Bindings))
	for n, b := range story.Former {
		name := DescribeHolder(b)
		if several || !slices.Contains(story.Nodes, b.Node) {
			name += " on node " + nodes[n]
		}
		layout := clock(b.FirstSeen)
		p.wrapped(4, fmt.Sprintf("  %s, interface %s: %s to %s (%s ago)", name, cmp.Or(b.Interface, "unknown"), b.FirstSeen.Local().Format(layout),
			b.LastSeen.Local().Format(layout), Age(b.LastSeen)))
	}
}

// Notes is what the notes of a story say, of which holder, and by which node if several have notes.
func Notes(story document.Story) []string {
	names := nodesOfStory(story)
	return each(story.Notes, func(note document.Note) string {
		text := note.Text
		if h := note.Holder; h != nil {
			name := cmp.Or(h.Pod.String(), h.Netns)
			if h.NodeID() != note.NodeID() {
				name = strings.TrimSpace(name + " on " + names[h.NodeID()])
			}
			if name != "" {
				text = name + ": " + text
			}
		}
		if len(story.Nodes) > 1 {
			text = "[" + names[note.NodeID()] + "] " + text
		}
		return text
	})
}

// nodesOfStory has the names of all nodes of a story by NodeID.
func nodesOfStory(story document.Story) map[string]string {
	ids := each(slices.Concat(story.Bindings, story.Former), document.Binding.NodeID)
	for _, note := range story.Notes {
		ids = append(ids, note.NodeID())
		if note.Holder != nil {
			ids = append(ids, note.Holder.NodeID())
		}
	}
	return merge.Names(ids)
}
