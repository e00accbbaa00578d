package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Story joins the stories of several nodes about one address in one network.
type Story struct {
	Key detector.Key
	// Nodes are the NodeIDs of the nodes that have a story, in the order of the answers.
	Nodes []string
	// Verdict is that of the node that knows most about the address. Verdicts are all of them if
	// they differ.
	Verdict  string
	Verdicts []Verdict
	Bindings []detector.Binding
	// Conflict is the open conflict, or the last resolved one; nil if there was none.
	Conflict *detector.Conflict
	// Notes are ordered by time.
	Notes []Note
}

// Verdict is the verdict of the nodes with these NodeIDs.
type Verdict struct {
	Nodes []string
	Text  string
}

// Note is a note with the NodeID of the node that made it.
type Note struct {
	Node string
	detector.Note
}

// Stories makes one story for each address and network, ordered by network; in a network that
// does not span the cluster one for each node.
func Stories(answers []cluster.Answer, rules Rules) []Story {
	all := make(map[domain][]nodeStory)
	var order []domain
	for _, a := range answers {
		id := a.Member.NodeID()
		for _, s := range a.Document.Stories[:min(len(a.Document.Stories), maxStories)] {
			at := rules.domain(s.Key, id)
			known := slices.ContainsFunc(all[at], func(s nodeStory) bool { return s.member.NodeID() == id })
			if known || !s.Key.IP.IsValid() {
				continue
			}
			if all[at] == nil {
				order = append(order, at)
			}
			all[at] = append(all[at], nodeStory{a.Member, s})
		}
	}
	slices.SortStableFunc(order, func(a, b domain) int { return a.key.Compare(b.key) })
	stories := make([]Story, 0, len(order))
	for _, at := range order {
		stories = append(stories, merged(all[at], rules))
	}
	return stories
}

// nodeStory is the story of one node.
type nodeStory struct {
	member cluster.Member
	detector.Story
}

func merged(stories []nodeStory, rules Rules) Story {
	s := Story{Key: stories[0].Key}
	all := make(holders)
	var conflicts []cluster.Answer
	for _, one := range stories {
		id := one.member.NodeID()
		s.Nodes = append(s.Nodes, id)
		all.add(id, one.Bindings)
		if one.Conflict != nil {
			conflicts = append(conflicts, cluster.Answer{
				Member: one.member, Document: cluster.Document{Conflicts: []detector.Conflict{*one.Conflict}},
			})
		}
		for _, n := range one.Notes[max(0, len(one.Notes)-maxNotes):] {
			s.Notes = append(s.Notes, Note{id, n})
		}
	}
	s.Bindings = all.list()
	if list, _ := Conflicts(conflicts, rules); len(list) > 0 {
		s.Conflict = &list[0]
	}
	slices.SortStableFunc(s.Notes, func(a, b Note) int { return a.At.Compare(b.At) })
	s.setVerdicts(stories)
	if s.unmatched(rules) {
		s.Verdict = "holders on different nodes that do not know of each other yet: suspected as soon as they do"
	}
	return s
}

// setVerdicts takes the verdict of the node with the strongest open conflict, then with the most
// holders; the first one of equals.
func (s *Story) setVerdicts(stories []nodeStory) {
	rank := func(s nodeStory) detector.State {
		if s.Conflict == nil || s.Conflict.State == detector.Resolved {
			return 0
		}
		return s.Conflict.State
	}
	s.Verdict = slices.MaxFunc(stories, func(a, b nodeStory) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a.Bindings), len(b.Bindings)))
	}).Verdict
	for _, one := range stories {
		n := slices.IndexFunc(s.Verdicts, func(v Verdict) bool { return v.Text == one.Verdict })
		if n < 0 {
			n = len(s.Verdicts)
			s.Verdicts = append(s.Verdicts, Verdict{Text: one.Verdict})
		}
		s.Verdicts[n].Nodes = append(s.Verdicts[n].Nodes, one.member.NodeID())
	}
	if len(s.Verdicts) == 1 {
		s.Verdicts = nil
	}
}

// unmatched reports whether several nodes have a holder of the address, and no node knows of a
// conflict though there should be one.
func (s *Story) unmatched(rules Rules) bool {
	if rules.Shared(s.Key.IP) || s.Conflict != nil && s.Conflict.State != detector.Resolved {
		return false
	}
	nodes, pods := make(map[string]bool), 0
	for _, b := range s.Bindings {
		if b.Evidence >= detector.Claimed {
			nodes[b.Holder.ID.Node] = true
		}
		if b.Evidence >= detector.Claimed && b.Evidence != detector.Host {
			pods++
		}
	}
	return len(nodes) > 1 && pods > 0
}

// Names returns the name of each node by its NodeID, for people. Where two nodes have the same
// name, each has its boot id added.
func Names(ids []string) map[string]string {
	names, first := make(map[string]string), make(map[string]string)
	for _, id := range ids {
		name := cluster.NodeName(id)
		switch other, known := first[name]; {
		case !known:
			first[name], names[id] = id, name
		case other != id:
			names[id], names[other] = FullName(id), FullName(other)
		}
	}
	return names
}

// FullName is the name of a node with its boot id.
func FullName(id string) string {
	name, boot, ok := strings.Cut(id, "/")
	if !ok {
		return name
	}
	return fmt.Sprintf("%s (boot %.8s)", name, boot)
}
