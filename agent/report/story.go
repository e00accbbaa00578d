package report

import (
	"maps"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
)

// story makes the document of a story. A holder that is gone is named from what the
// story itself says of it.
func (c *collection) story(story merge.Story) api.Story {
	document := api.Story{
		Network:  story.Key.Network,
		IP:       story.Key.IP.String(),
		Nodes:    merge.Names(story.Nodes),
		Verdict:  story.Verdict,
		Bindings: make([]api.Binding, 0, len(story.Bindings)),
		Notes:    make([]api.Note, 0, len(story.Notes)),
	}
	for _, v := range story.Verdicts {
		document.Verdicts = append(document.Verdicts, api.Verdict{Nodes: merge.Names(v.Nodes), Verdict: v.Text})
	}
	nodes := storyNodes(story)
	names := make(map[detector.HolderID]holderName)
	maps.Copy(names, c.present)
	name := func(h detector.Holder) { names[h.ID] = holderName{h.InterfaceName, h.NetnsName, h.Pod} }
	if story.Conflict != nil {
		conflict := c.conflict(*story.Conflict)
		document.Conflict = &conflict
		for _, holder := range story.Conflict.Holders {
			name(holder.Holder)
		}
	}
	for _, b := range story.Bindings {
		document.Bindings = append(document.Bindings, api.NewBinding(b))
		name(b.Holder)
	}
	for _, note := range story.Notes {
		n := api.Note{
			At:        note.At.Round(0),
			Kind:      note.Kind.String(),
			Node:      nodes[note.Node],
			Interface: names[note.Holder].iface,
			Netns:     names[note.Holder].netns,
			Pod:       api.NewPod(names[note.Holder].pod),
			Text:      note.Text,
		}
		if note.Holder.Node != "" && note.Holder.Node != note.Node {
			n.HolderNode = nodes[note.Holder.Node]
		}
		document.Notes = append(document.Notes, n)
	}
	return document
}

// storyNodes names the nodes of a story, by their boots where two have one name.
func storyNodes(story merge.Story) map[string]string {
	ids := slices.Clone(story.Nodes)
	for _, b := range story.Bindings {
		ids = append(ids, b.Holder.ID.Node)
	}
	for _, n := range story.Notes {
		ids = append(ids, n.Node)
		if n.Holder.Node != "" {
			ids = append(ids, n.Holder.Node)
		}
	}
	return namesOf(ids)
}
