package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/document/say"
)

// Explanation prints what is known of an address.
func (p *Printer) Explanation(e document.Explanation) {
	s := stories{p}
	if text := say.Unseen(e); text != "" {
		p.wrapped(0, text)
	}
	for n, story := range e.Stories {
		if n > 0 {
			p.println()
		}
		s.story(story)
	}
	s.records(say.OnRecord(e))
	if why := say.Why(e, e.Stories...); len(why) > 0 {
		p.println("\nWhy:")
		p.sentences(2, each(why, func(text string) string { return "  " + text }))
	}
	var conflicts []document.Conflict
	for _, story := range e.Stories {
		steps{p}.entries(say.Do(story.Conflict))
		if story.Conflict != nil {
			conflicts = append(conflicts, *story.Conflict)
		}
	}
	steps{p}.entries(say.Found(e))
	if text := say.Unasked(e.Coverage, conflicts...); text != "" {
		p.wrapped(0, text)
	}
	if len(e.Missing) > 0 {
		p.println()
	}
	p.Coverage(e.Coverage, "stories")
}

// stories prints what is known of an address, in parts.
type stories struct{ *Printer }

func (s stories) story(story document.Story) {
	for _, line := range Verdict(story, s.Paint) {
		s.wrapped(2+len(line)-len(strings.TrimLeft(line, " ")), line)
	}
	if text := say.Meant(story.Conflict); text != "" {
		s.wrapped(2, "  "+text)
	}
	s.holders(story)
	if len(story.Former) > 0 {
		s.println("\nWho had it before, the last one first:")
		for _, line := range Former(story) {
			s.wrapped(4, "  "+line)
		}
	}
	if len(story.Notes) == 0 {
		return
	}
	s.println("\nWhat happened:")
	layout := clock(story.Notes[0].At)
	for n, text := range Notes(story) {
		s.wrapped(3+len(layout), fmt.Sprintf("  %s  %s", story.Notes[n].At.Local().Format(layout), text))
	}
}

func (s stories) holders(story document.Story) {
	s.println("\nHolders, the oldest first:")
	if len(story.Bindings) == 0 {
		s.println("  none now")
	}
	names := named(story, story.Bindings)
	for n, b := range story.Bindings {
		s.wrapped(4, "  "+names[n])
		weak := ""
		if say.IsConfiguredOnly(b) {
			weak = ": " + say.Weak
		}
		s.wrapped(6, fmt.Sprintf("      interface %s, MAC %s, evidence %s%s", cmp.Or(b.Interface, "unknown"), cmp.Or(b.MAC.String(), "unknown"), b.Evidence, weak))
		if b.Pod != nil {
			id := "pod UID " + b.Pod.UID
			if b.Pod.IsContainer() {
				id = strings.TrimSpace(b.Pod.Engine + " " + b.Pod.UID)
			}
			s.wrapped(6, fmt.Sprintf("      netns %s, %s", b.Netns, id))
		}
		s.wrapped(6, fmt.Sprintf("      first seen %s (%s ago), last seen %s ago",
			b.FirstSeen.Local().Format("2006-01-02 15:04:05.000"), Age(b.FirstSeen), Age(b.LastSeen)))
	}
}

// records prints what the nodes have on record of the address.
func (s stories) records(list []say.Records) {
	for _, r := range list {
		s.println("\n" + clip(r.Head, s.Width))
		for _, line := range r.Lines {
			s.wrapped(4, "  "+line)
		}
	}
}

// Verdict is what the nodes have decided about an address; paint marks the state of a conflict. Lines about single nodes are indented.
func Verdict(story document.Story, paint func(state string) string) (lines []string) {
	where := "node "
	if len(story.Nodes) != 1 {
		where = "nodes "
	}
	lines = append(lines, fmt.Sprintf("%s in network %s on %s", story.IP, story.Network, where+say.List(story.Nodes)), "Verdict: "+story.Verdict+".")
	for _, v := range story.Verdicts {
		lines = append(lines, fmt.Sprintf("  %s: %s.", say.List(v.Nodes), v.Verdict))
	}
	if c := story.Conflict; c != nil {
		kind := "Conflict"
		if c.Drill {
			kind = "Drill"
		}
		text := fmt.Sprintf("%s %s, %s: %s", kind, c.ID, c.Scope, paint(c.State.String()))
		switch {
		case !c.ResolvedAt.IsZero():
			text += fmt.Sprintf(" %s ago, was open for %s", Age(c.ResolvedAt), Lasted(*c))
		case !c.ConfirmedAt.IsZero():
			text += fmt.Sprintf(" %s after the second holder was seen", say.Span(c.ConfirmedAt.Sub(c.SecondSeen)))
		}
		lines = append(lines, text)
	}
	return lines
}

// Former is who had the address before.
func Former(story document.Story) (lines []string) {
	names := named(story, story.Former)
	for n, b := range story.Former {
		layout := clock(b.FirstSeen)
		lines = append(lines, fmt.Sprintf("%s, interface %s: %s to %s (%s ago)", names[n], cmp.Or(b.Interface, "unknown"), b.FirstSeen.Local().Format(layout),
			b.LastSeen.Local().Format(layout), Age(b.LastSeen)))
	}
	return lines
}

// named describes some holders of a story, with their nodes if it is about several.
func named(story document.Story, holders []document.Binding) []string {
	nodes := nodesOfStory(story)
	_, several := say.NodesOf(slices.Concat(story.Former, story.Bindings))
	return each(holders, func(b document.Binding) string {
		if several || len(story.Nodes) > 1 || !slices.Contains(story.Nodes, b.Node) {
			return DescribeHolder(b) + " on node " + nodes[b.NodeID()]
		}
		return DescribeHolder(b)
	})
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
