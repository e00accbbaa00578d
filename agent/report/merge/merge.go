// Package merge joins the documents that the agents of a cluster return for a query: bindings,
// conflicts, stories, and which nodes share addresses.
//
// It is pure and does not know how the answers arrived. They are hostile input: an agent is
// believed about the holders of its own node only, the order of the answers does not matter, and
// everything is limited.
package merge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxBindings and maxConflicts limit the merged lists; this node's own are never left out.
	maxBindings  = 50_000
	maxConflicts = 20_000
	// maxHolders limits the holders of one merged conflict or story.
	maxHolders = 256
	// maxStories and maxNotes limit the stories of one answer and the notes of a story.
	maxStories = 16
	maxNotes   = 64
)

// Rules are what a merge needs from the configuration.
type Rules struct {
	// ClusterWide reports whether a network spans all nodes. In other networks the same address on
	// two nodes is not a duplicate.
	ClusterWide func(network string) bool
	// Shared reports whether an address may have many holders.
	Shared func(netip.Addr) bool
}

// domain is where an address must be unique: in the cluster, or on one node.
type domain struct {
	key  detector.Key
	node string // NodeID, empty for the cluster
}

func (d domain) compare(o domain) int {
	return cmp.Or(d.key.Compare(o.key), cmp.Compare(d.node, o.node))
}

func (r Rules) domain(key detector.Key, node string) domain {
	if r.ClusterWide(key.Network) {
		node = ""
	}
	return domain{key, node}
}

// Bindings returns the bindings that the members reported of their own holders, ordered by
// network, address and FirstSeen, and how many were left out.
func Bindings(answers []cluster.Answer) (list []detector.Binding, omitted int) {
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
		return cmp.Or(a.Key.Compare(b.Key), detector.CompareAge(a, b))
	})
	return list, omitted
}

// omittedBy returns how many records a member left out, up to the limits: the member may lie.
func omittedBy(a cluster.Answer) int { return min(max(a.Document.Omitted, 0), 1_000_000) }

// holders are the holders of one address as several nodes report them.
type holders map[detector.HolderID]report

type report struct {
	binding detector.Binding
	own     bool // by the holder's own node
}

// add adds what the node with id reports. The report of the holder's own node wins; among the
// others one that has the name of the pod.
func (h holders) add(id string, list []detector.Binding) {
	for _, b := range list {
		own := b.Holder.ID.Node == id
		old, known := h[b.Holder.ID]
		switch {
		case !known && len(h) < maxHolders, known && own && !old.own:
			h[b.Holder.ID] = report{b, own}
		case known && !own && !old.own:
			if old.binding.Holder.Pod == (detector.Pod{}) {
				old.binding.Holder = b.Holder
			}
			// It is unreachable only if it is so for all nodes, and gone if it is so for one.
			old.binding.Unreachable = old.binding.Unreachable && b.Unreachable
			old.binding.Gone = old.binding.Gone || b.Gone
			h[b.Holder.ID] = old
		}
	}
}

// list returns the holders, the oldest first.
func (h holders) list() []detector.Binding {
	list := make([]detector.Binding, 0, len(h))
	for _, r := range h {
		list = append(list, r.binding)
	}
	slices.SortFunc(list, detector.CompareAge)
	return list
}
