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
	// Nodes are the NodeIDs of the nodes that have a story: the one that asks, then the others by name.
	Nodes []string
	// Verdict is that of the node that knows most about the address, unless all nodes together know more holders. Verdicts
	// are those of the nodes if they differ.
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
	slices.SortFunc(order, domain.compare)
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
	// The order in which the nodes answered does not matter.
	slices.SortFunc(stories, func(a, b nodeStory) int {
		return cmp.Or(selfFirst(a.member.Self, b.member.Self), strings.Compare(a.member.NodeID(), b.member.NodeID()))
	})
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
	s.setVerdicts(stories, rules)
	return s
}

// setVerdicts takes the verdict of the node with the strongest open conflict, then with the most
// holders; the first one of equals. Of holders that this node does not know, its verdict says nothing.
func (s *Story) setVerdicts(stories []nodeStory, rules Rules) {
	rank := func(s nodeStory) detector.State {
		if s.Conflict == nil || s.Conflict.State == detector.Resolved {
			return 0
		}
		return s.Conflict.State
	}
	most := slices.MaxFunc(stories, func(a, b nodeStory) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(live(a.Bindings), live(b.Bindings)))
	})
	s.Verdict = most.Verdict
	switch n := live(s.Bindings); {
	case n == live(most.Bindings):
	case rank(most) > 0:
		s.Verdict += fmt.Sprintf("; live holders by the reports of all nodes: %d", n)
	default:
		s.Verdict = detector.NoConflict(s.Bindings, rules.Shared(s.Key.IP))
	}
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

// live counts the holders that have the address and do not only forward.
func live(bindings []detector.Binding) (n int) {
	for _, b := range bindings {
		if b.Counts() {
			n++
		}
	}
	return n
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
