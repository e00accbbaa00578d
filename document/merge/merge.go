// Package merge joins what the agents of a cluster answer to a query: bindings, conflicts, stories, and which nodes share addresses.
//
// It is pure and does not know how the answers arrived. They are hostile input: an agent is believed about the holders of its own node
// only, the order of the answers does not matter, and everything is limited.
package merge

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// maxBindings and maxConflicts limit the merged lists; those of the node that asks are never left out.
	maxBindings  = 50_000
	maxConflicts = 20_000
	// maxHolders limits the holders of one merged conflict or story.
	maxHolders = 256
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

func (r Rules) domain(network string, ip netip.Addr, node string) domain {
	if r.ClusterWide(network) {
		node = ""
	}
	return domain{detector.Key{Network: network, IP: ip}, node}
}

// Join leaves the latest answer of each node, of the one that asks its own. So it does not matter in which order, how often or in which groups they come.
func Join(answers []document.Answer) (list []document.Answer) {
	last := make(map[string]int) // in the list, by NodeID
	for _, a := range answers {
		i, known := last[a.NodeID()]
		switch {
		case !known:
			last[a.NodeID()] = len(list)
			list = append(list, a)
		case a.Self && !list[i].Self, a.Self == list[i].Self && a.At.After(list[i].At):
			list[i] = a
		}
	}
	return list
}

// Bindings returns the bindings that agents reported of their own holders, ordered by network, address and FirstSeen, and how many were
// left out.
func Bindings(answers []document.Answer) (list []document.Binding, omitted int) {
	for _, a := range answers {
		omitted += a.Omitted
		for _, b := range a.Bindings {
			if len(list) >= maxBindings && !a.Self {
				omitted++
			} else {
				list = append(list, b)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b document.Binding) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.IP.Compare(b.IP), compareAge(a, b))
	})
	return list, omitted
}

// compareAge orders the holders of an address, the oldest first.
func compareAge(a, b document.Binding) int {
	return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), a.ID().Compare(b.ID()))
}

// holders are the holders of one address as several nodes report them.
type holders map[detector.HolderID]witnessed

type witnessed struct {
	binding document.Binding
	own     bool // by the holder's own node
}

// add adds what the node with id reports. The report of the holder's own node wins, and only that has facts; among the
// others one that has the name of the pod.
func (h holders) add(id string, list []document.Binding) {
	for _, b := range list {
		holder, own := b.ID(), b.NodeID() == id
		if b.Node != cluster.NodeName(id) { // perhaps before the last boot of its node
			b.Facts = nil
		}
		old, known := h[holder]
		switch {
		case !known && len(h) < maxHolders, known && own && !old.own:
			h[holder] = witnessed{b, own}
		case known && !own && !old.own:
			if old.binding.Pod == nil {
				old.binding.Holder = b.Holder
			}
			old.binding.Facts = cmp.Or(old.binding.Facts, b.Facts)
			old.binding.LastSeen = schedule.Later(old.binding.LastSeen, b.LastSeen)
			// It is unreachable only if it is so for all nodes, and gone if it is so for one.
			old.binding.Unreachable = old.binding.Unreachable && b.Unreachable
			old.binding.Gone = old.binding.Gone || b.Gone
			h[holder] = old
		}
	}
}

// list returns the holders, the oldest first.
func (h holders) list() []document.Binding {
	list := make([]document.Binding, 0, len(h))
	for _, r := range h {
		list = append(list, r.binding)
	}
	slices.SortFunc(list, compareAge)
	return list
}
