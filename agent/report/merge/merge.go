// Package merge makes one table of what the agents of a cluster answer: bindings,
// conflicts, stories, and which nodes share addresses.
//
// It is pure and must not know how the answers came. They are hostile: an agent is
// believed about the holders of its own node only, order and size mean nothing, and
// everything is bounded.
package merge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxBindings bounds a merged table, the own node's apart: more is nothing that a
	// person reads.
	maxBindings = 50_000
	// maxConflicts bounds the conflicts taken from all answers together in the same way.
	maxConflicts = 20_000
	// maxHolders bounds the holders of one merged conflict or story.
	maxHolders = 256
	// maxStories and maxNotes bound the stories of one answer and the notes of a story.
	maxStories = 16
	maxNotes   = 64
)

// Rules are what a merge has to know of the configuration.
type Rules struct {
	// Wide says whether a network reaches over all nodes: in others one address on two
	// nodes has nothing to do with itself.
	ClusterWide func(network string) bool
	// Shared says whether an address may have many holders.
	Shared func(netip.Addr) bool
}

// Bindings returns what the members have themselves, ordered by network, address and
// FirstSeen, and how many were left out.
func Bindings(answers []cluster.Answer) ([]detector.Binding, int) {
	var list []detector.Binding
	omitted := 0
	for _, a := range answers {
		omitted += omittedBy(a)
		id := a.Member.NodeID()
		for _, b := range a.Document.Bindings {
			switch {
			case b.Holder.ID.Node != id || !b.Key.IP.IsValid():
			case len(list) >= maxBindings && !a.Member.Self:
				omitted++
			default:
				list = append(list, b)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b detector.Binding) int {
		return cmp.Or(compareKeys(a.Key, b.Key), compareBindings(a, b))
	})
	return list, omitted
}

// left is how many records an answer says that it left out.
func omittedBy(a cluster.Answer) int {
	const most = 1_000_000 // it may say what it likes
	return min(max(a.Document.Omitted, 0), most)
}

func compareKeys(a, b detector.Key) int {
	return cmp.Or(cmp.Compare(a.Network, b.Network), a.IP.Compare(b.IP))
}

// compareBindings orders holders of one address, the elder first.
func compareBindings(a, b detector.Binding) int {
	return cmp.Or(
		a.FirstSeen.Compare(b.FirstSeen),
		cmp.Compare(a.Holder.ID.Node, b.Holder.ID.Node),
		cmp.Compare(a.Holder.ID.Netns, b.Holder.ID.Netns),
		cmp.Compare(a.Holder.ID.Ifindex, b.Holder.ID.Ifindex),
		cmp.Compare(a.Holder.ID.Generation, b.Holder.ID.Generation),
	)
}

// holders are the holders of one address as several nodes tell of them.
type holders struct {
	byID map[detector.HolderID]report
}

// report is a binding with the node that tells of it.
type report struct {
	binding detector.Binding
	own     bool // by the holder's own node
}

// add takes in what the node with id says. The holder's own node knows best; of the
// others the one that knows the holder's name.
func (h *holders) add(id string, list []detector.Binding) {
	if h.byID == nil {
		h.byID = make(map[detector.HolderID]report)
	}
	for _, b := range list {
		own := b.Holder.ID.Node == id
		old, known := h.byID[b.Holder.ID]
		switch {
		case !known && len(h.byID) < maxHolders, known && own && !old.own:
			h.byID[b.Holder.ID] = report{b, own}
		case known && !own && !old.own:
			if old.binding.Holder.Pod == (detector.Pod{}) {
				old.binding.Holder = b.Holder
			}
			// It is out of reach only if it is so for everybody.
			old.binding.Unreachable = old.binding.Unreachable && b.Unreachable
			h.byID[b.Holder.ID] = old
		}
	}
}

// list returns the holders, the elder first.
func (h *holders) list() []detector.Binding {
	list := make([]detector.Binding, 0, len(h.byID))
	for _, t := range h.byID {
		list = append(list, t.binding)
	}
	slices.SortFunc(list, compareBindings)
	return list
}
