package agent

import (
	"maps"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// newStory makes the document of a story. A holder that is gone is named from what the
// story itself says of it.
func newStory(story merge.Story, present map[detector.HolderID]named) api.Story {
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
	names := make(map[detector.HolderID]named)
	maps.Copy(names, present)
	name := func(h detector.Holder) { names[h.ID] = named{h.InterfaceName, h.NetnsName, h.Pod} }
	if story.Conflict != nil {
		conflict := api.NewConflict(*story.Conflict)
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
			Node:      cluster.NodeName(note.Node),
			Interface: names[note.Holder].iface,
			Netns:     names[note.Holder].netns,
			Pod:       api.NewPod(names[note.Holder].pod),
			Text:      note.Text,
		}
		if note.Holder.Node != "" && note.Holder.Node != note.Node {
			n.HolderNode = cluster.NodeName(note.Holder.Node)
		}
		document.Notes = append(document.Notes, n)
	}
	return document
}
