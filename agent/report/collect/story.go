package collect

import (
	"maps"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
)

// story makes the document of a story.
func (c *Collection) story(story merge.Story) api.Story {
	document := api.Story{
		Network:  story.Key.Network,
		IP:       story.Key.IP.String(),
		Nodes:    nameList(story.Nodes),
		Verdict:  story.Verdict,
		Bindings: make([]api.Binding, 0, len(story.Bindings)),
		Notes:    make([]api.Note, 0, len(story.Notes)),
	}
	for _, v := range story.Verdicts {
		document.Verdicts = append(document.Verdicts, api.Verdict{Nodes: nameList(v.Nodes), Verdict: v.Text})
	}
	ids := slices.Clone(story.Nodes)
	holders := make(map[detector.HolderID]detector.Holder)
	maps.Copy(holders, c.Holders)
	if story.Conflict != nil {
		conflict := api.NewConflict(*story.Conflict)
		c.advise(&conflict, *story.Conflict)
		document.Conflict = &conflict
		for _, b := range story.Conflict.Holders {
			holders[b.Holder.ID] = b.Holder
		}
	}
	for _, b := range story.Bindings {
		document.Bindings = append(document.Bindings, api.NewBinding(b))
		holders[b.Holder.ID] = b.Holder
		ids = append(ids, b.Holder.ID.Node)
	}
	for _, n := range story.Notes {
		ids = append(ids, n.Node, n.Holder.Node)
	}
	names := merge.Names(ids)
	for _, note := range story.Notes {
		// A node has the names that the others have sent it; the holder's own knows best.
		if known := holders[note.Holder]; known.Pod == (detector.Pod{}) && (note.Pod != detector.Pod{} || note.Node == note.Holder.Node) {
			holders[note.Holder] = detector.Holder{InterfaceName: note.InterfaceName, NetnsName: note.NetnsName, Pod: note.Pod}
		}
	}
	for _, note := range story.Notes {
		holder := holders[note.Holder]
		n := api.Note{
			At:        note.At.Round(0),
			Kind:      note.Kind.String(),
			Node:      names[note.Node],
			Interface: holder.InterfaceName,
			Netns:     holder.NetnsName,
			Pod:       api.NewPod(holder.Pod),
			Text:      note.Text,
		}
		if note.Holder.Node != note.Node {
			n.HolderNode = names[note.Holder.Node]
		}
		document.Notes = append(document.Notes, n)
	}
	return document
}

// nameList returns the names of nodes by their NodeIDs.
func nameList(ids []string) (list []string) {
	names := merge.Names(ids)
	for _, id := range ids {
		list = append(list, names[id])
	}
	return list
}
