package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Story is what several nodes tell of one address in one network.
type Story struct {
	Key detector.Key
	// Nodes are the NodeIDs of those who tell it, in the order of the answers.
	Nodes []string
	// Verdict is that of the node that knows most of it. Verdicts are all there are,
	// where they differ.
	Verdict  string
	Verdicts []Verdict
	Bindings []detector.Binding
	// Conflict is the open conflict, or the last resolved one; nil if there was none.
	Conflict *detector.Conflict
	// Notes are in order of time.
	Notes []Note
}

// Verdict is what the nodes with these NodeIDs think.
type Verdict struct {
	Nodes []string
	Text  string
}

// Note is a note with the NodeID of whom it is from.
type Note struct {
	Node string
	detector.Note
}

// Stories makes one story of each address in each network, ordered by network, and of
// each node where the network ends there.
func Stories(answers []cluster.Answer, rules Rules) []Story {
	type place struct {
		key  detector.Key
		node string
	}
	nodeStories := make(map[place][]nodeStory)
	var order []place
	for _, a := range answers {
		id := a.Member.NodeID()
		for _, s := range a.Document.Stories[:min(len(a.Document.Stories), maxStories)] {
			at := place{s.Key, ""}
			if !rules.ClusterWide(s.Key.Network) {
				at.node = id
			}
			known := slices.ContainsFunc(nodeStories[at], func(c nodeStory) bool { return c.member.NodeID() == id })
			if known || !s.Key.IP.IsValid() {
				continue
			}
			if nodeStories[at] == nil {
				order = append(order, at)
			}
			nodeStories[at] = append(nodeStories[at], nodeStory{a.Member, s})
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return compareKeys(a.key, b.key) })
	stories := make([]Story, 0, len(order))
	for _, at := range order {
		stories = append(stories, merged(nodeStories[at], rules))
	}
	return stories
}

// chapter is the story of one node.
type nodeStory struct {
	member cluster.Member
	detector.Story
}

func merged(nodeStories []nodeStory, rules Rules) Story {
	s := Story{Key: nodeStories[0].Key}
	var all holders
	var conflicts []cluster.Answer
	for _, c := range nodeStories {
		id := c.member.NodeID()
		s.Nodes = append(s.Nodes, id)
		all.add(id, c.Bindings)
		if c.Conflict != nil {
			conflicts = append(conflicts, cluster.Answer{
				Member: c.member, Document: cluster.Document{Conflicts: []detector.Conflict{*c.Conflict}},
			})
		}
		for _, n := range c.Notes[max(0, len(c.Notes)-maxNotes):] {
			s.Notes = append(s.Notes, Note{id, n})
		}
	}
	s.Bindings = all.list()
	// The open one, or the one that was resolved last.
	if list, _ := Conflicts(conflicts, rules); len(list) > 0 {
		s.Conflict = &list[0]
	}
	slices.SortStableFunc(s.Notes, func(a, b Note) int { return a.At.Compare(b.At) })
	s.verdicts(nodeStories)
	if s.unmatched(rules) {
		s.Verdict = "holders on different nodes that do not know of each other yet: suspected as soon as they do"
	}
	return s
}

// verdicts takes that of the node with the strongest conflict, then with the most
// holders; the first of equals.
func (s *Story) verdicts(nodeStories []nodeStory) {
	rank := func(c nodeStory) int {
		if c.Conflict == nil || c.Conflict.State == detector.Resolved {
			return 0
		}
		return int(c.Conflict.State)
	}
	best := slices.MaxFunc(nodeStories, func(a, b nodeStory) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a.Bindings), len(b.Bindings)))
	})
	s.Verdict = best.Verdict
	for _, c := range nodeStories {
		n := slices.IndexFunc(s.Verdicts, func(v Verdict) bool { return v.Text == c.Verdict })
		if n < 0 {
			n = len(s.Verdicts)
			s.Verdicts = append(s.Verdicts, Verdict{Text: c.Verdict})
		}
		s.Verdicts[n].Nodes = append(s.Verdicts[n].Nodes, c.member.NodeID())
	}
	if len(s.Verdicts) == 1 {
		s.Verdicts = nil
	}
}

// unmatched says whether each node knows one of several holders only, and none of the
// reasons is there for which that is right.
func (s *Story) unmatched(rules Rules) bool {
	if rules.Shared(s.Key.IP) || s.Conflict != nil && s.Conflict.State != detector.Resolved {
		return false
	}
	nodes, pods := make(map[string]bool), 0
	for _, b := range s.Bindings {
		if b.Evidence >= detector.Data {
			nodes[b.Holder.ID.Node] = true
		}
		if b.Evidence == detector.Data || b.Evidence == detector.Announced {
			pods++
		}
	}
	return len(nodes) > 1 && pods > 0
}

// Names are the nodes' names of NodeIDs, for people; one that two of them have is told
// apart by its boot.
func Names(ids []string) []string {
	count := make(map[string]int)
	for _, id := range ids {
		count[cluster.NodeName(id)]++
	}
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		name := cluster.NodeName(id)
		if count[name] > 1 {
			name = FullName(id)
		}
		names = append(names, name)
	}
	return names
}

// FullName is the name of a node with its boot.
func FullName(id string) string {
	name, boot, ok := strings.Cut(id, "/")
	if !ok {
		return name
	}
	return fmt.Sprintf("%s (boot %.8s)", name, boot)
}
