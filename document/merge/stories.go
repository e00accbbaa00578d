package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Stories makes one story for each address and network, ordered by network; in a network that does not span the cluster one for each
// node. Its nodes, by their names for people, are those that have a story: the one that asks, then the others by name. Its verdict is
// that of the node that knows most about the address, unless all nodes together know more holders.
func Stories(answers []document.Answer, rules Rules) []document.Story {
	all := make(map[domain][]nodeStory)
	for _, a := range answers {
		id := a.NodeID()
		for _, s := range a.Stories {
			at := rules.domain(s.Network, s.IP, id)
			if !slices.ContainsFunc(all[at], func(s nodeStory) bool { return s.node == id }) {
				all[at] = append(all[at], nodeStory{&a, id, s})
			}
		}
	}
	stories := make([]document.Story, 0, len(all))
	for _, at := range slices.SortedFunc(maps.Keys(all), domain.compare) {
		stories = append(stories, merged(all[at], rules))
	}
	return stories
}

// nodeStory is the story of one node.
type nodeStory struct {
	from *document.Answer
	node string // NodeID
	document.Story
}

func merged(stories []nodeStory, rules Rules) document.Story {
	// The order in which the nodes answered does not matter.
	slices.SortFunc(stories, func(a, b nodeStory) int {
		return cmp.Or(selfFirst(a.from.Self, b.from.Self), strings.Compare(a.node, b.node))
	})
	s := document.Story{Network: stories[0].Network, IP: stories[0].IP, Notes: []document.Note{}}
	all := make(holders)
	var conflicts []document.Answer
	var ids []string
	for _, one := range stories {
		ids = append(ids, one.node)
		all.add(one.node, one.Bindings)
		if one.Conflict != nil {
			conflicts = append(conflicts, document.Answer{
				Node: one.from.Node, BootID: one.from.BootID, Self: one.from.Self, Conflicts: []document.Conflict{*one.Conflict},
			})
		}
		s.Notes = append(s.Notes, one.Notes...)
		s.Former = append(s.Former, one.Former...)
	}
	s.Nodes, s.Bindings = NameList(ids), all.list()
	if list, _ := Conflicts(conflicts, rules); len(list) > 0 {
		s.Conflict = &list[0]
		all.add("", s.Conflict.Holders) // for their names
	}
	slices.SortStableFunc(s.Former, func(a, b document.Binding) int { return b.LastSeen.Compare(a.LastSeen) })
	s.Former = s.Former[:min(len(s.Former), detector.MaxFormer)]
	slices.SortStableFunc(s.Notes, func(a, b document.Note) int { return a.At.Compare(b.At) })
	all.name(s.Notes)
	setVerdicts(&s, stories, rules)
	return s
}

// name completes what notes say of holders: a node has the names that the others have sent it, and the holder's own knows best.
func (h holders) name(notes []document.Note) {
	known := make(map[detector.HolderID]document.Holder)
	for id, r := range h {
		known[id] = r.binding.Holder
	}
	for _, n := range notes {
		if n.Holder == nil {
			continue
		}
		id, named := n.Holder.ID(), n.Holder
		best, there := known[id]
		if best.Pod != nil || named.Pod == nil && n.NodeID() != named.NodeID() {
			continue
		}
		if !there {
			best = *named
		}
		best.Pod, best.Netns, best.Interface = named.Pod, cmp.Or(named.Netns, best.Netns), cmp.Or(named.Interface, best.Interface)
		known[id] = best
	}
	for i, n := range notes {
		if n.Holder == nil {
			continue
		}
		if best, ok := known[n.Holder.ID()]; ok {
			notes[i].Holder = &best
		}
	}
}

// setVerdicts takes the verdict of the node with the strongest open conflict, then with the most
// holders; the first one of equals. Of holders that this node does not know, its verdict says nothing.
func setVerdicts(s *document.Story, stories []nodeStory, rules Rules) {
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
		var all []detector.Binding
		for _, b := range s.Bindings {
			all = append(all, b.Detector())
		}
		s.Verdict = detector.NoConflict(all, rules.Shared(s.IP))
	}
	nodes := make(map[string][]string)
	var order []string
	for n, one := range stories {
		if nodes[one.Verdict] == nil {
			order = append(order, one.Verdict)
		}
		nodes[one.Verdict] = append(nodes[one.Verdict], s.Nodes[n])
	}
	for _, verdict := range order {
		if len(order) > 1 {
			s.Verdicts = append(s.Verdicts, document.Verdict{Nodes: nodes[verdict], Verdict: verdict})
		}
	}
}

// live counts the holders that have the address and do not only forward.
func live(bindings []document.Binding) (n int) {
	for _, b := range bindings {
		if b.Evidence.Counts() {
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

// NameList returns the names of nodes by their NodeIDs.
func NameList(ids []string) (list []string) {
	names := Names(ids)
	for _, id := range ids {
		list = append(list, names[id])
	}
	return list
}

// FullName is the name of a node with its boot id.
func FullName(id string) string {
	name, boot, ok := strings.Cut(id, "/")
	if !ok {
		return name
	}
	return fmt.Sprintf("%s (boot %.8s)", name, boot)
}
