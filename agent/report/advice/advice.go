// Package advice says what to do about a conflict: which holder is the newer one, and what
// removes each. It is pure, and must not guess: what the holders' agents do not tell is said to
// be unknown, or left out.
package advice

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// NextHop is where the node with that id says that it sends packets to the address.
type NextHop struct {
	Node string
	cluster.NextHop
}

// removalRank is that of a holder in the order in which to remove them.
type removalRank int

const (
	rankStopped  removalRank = iota // nobody misses it
	rankReplaced                    // of a pod that has a later sandbox
	rankNewer
	rankDark // no node sends packets to it
	rankOther
	rankNode // nobody removes a node for an address
)

var reasons = map[removalRank]string{rankStopped: "stopped", rankReplaced: "replaced", rankNewer: "newer", rankDark: "dark"}

// Of returns what to do about a confirmed conflict, nil where it has fewer than two holders;
// names gives the name of a node by its id.
func Of(c detector.Conflict, hops []NextHop, names func(id string) string) *api.Advice {
	if len(c.Holders) < 2 {
		return nil // as another node tells it, who may tell anything
	}
	if unknown, because := withheld(c.Holders); unknown != "" {
		return &api.Advice{Unknown: unknown, Held: because, Remove: []api.Removal{}}
	}
	a := new(api.Advice)
	order := byAge(c.Holders)
	if last, than, by, after, unknown := newest(c.Holders); unknown == "" {
		a.Newer, a.Than, a.By, a.AfterSeconds = &last, &than, by, after.Seconds()
		order = first(order, last)
	} else {
		a.Unknown = unknown
	}
	dark := unreached(c.Holders, hops)
	replacedBy := replaced(c.Holders)
	rank := func(holder int) removalRank {
		switch {
		case c.Holders[holder].Evidence == detector.Host:
			return rankNode
		case c.Holders[holder].Holder.Sandbox.Stopped:
			return rankStopped
		case replacedBy[holder]:
			return rankReplaced
		case a.Newer != nil && *a.Newer == holder:
			return rankNewer
		case a.Newer == nil && dark[holder]:
			return rankDark
		}
		return rankOther
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(rank(x), rank(y)) })
	host := rank(order[len(order)-1]) == rankNode
	for n, holder := range order {
		b := c.Holders[holder]
		r := api.Removal{Holder: holder, Because: reasons[rank(holder)]}
		if host && n == 0 && rank(holder) > rankReplaced && rank(holder) != rankNode {
			r.Because = "pod"
		}
		if b.Evidence != detector.Host {
			r.Command, r.On = command(b, named(c.Holders, b) > 1, rank(holder) == rankNewer, names)
			r.Then = flushes(b, hops, names)
		}
		a.Remove = append(a.Remove, r)
	}
	return a
}

// held returns why nothing is to be removed now and the holders that it is about; empty if
// something is. Of a holder whose node is out of reach nobody knows whether it lives: if not,
// another may be the only one. Where two nodes run one pod, it is a node that has to go.
func withheld(holders []detector.Binding) (unknown string, because []int) {
	which := func(ok func(detector.Binding) bool) (list []int) {
		for n, b := range holders {
			if ok(b) {
				list = append(list, n)
			}
		}
		return list
	}
	if lost := which(func(b detector.Binding) bool { return b.Unreachable }); lost != nil {
		return unreachable, lost
	}
	if twice := which(func(b detector.Binding) bool {
		return slices.ContainsFunc(holders, func(other detector.Binding) bool { return samePod(b, other) })
	}); twice != nil {
		return twoNodes, twice
	}
	return "", nil
}

// byAge returns the places of the holders, the one that was made or seen last first.
func byAge(holders []detector.Binding) []int {
	var order []int
	created := allCreated(holders)
	for n := range holders {
		order = append(order, n)
	}
	slices.SortStableFunc(order, func(x, y int) int {
		if created {
			return holders[y].Holder.CreatedAt.Compare(holders[x].Holder.CreatedAt)
		}
		return holders[y].FirstSeen.Compare(holders[x].FirstSeen)
	})
	return order
}

// first moves one to the front.
func first(order []int, one int) []int {
	order = slices.DeleteFunc(order, func(n int) bool { return n == one })
	return slices.Insert(order, 0, one)
}

// unreached returns the holders that no node with a holder sends packets to. It is empty unless
// all of them have told, and each leads to a holder by its own interface, or to another of them.
// A lead over a bridge is the node's own neighbour entry, and pods there have others.
func unreached(holders []detector.Binding, hops []NextHop) map[int]bool {
	with, reported := make(map[string]bool), make(map[string]bool)
	for _, b := range holders {
		with[b.Holder.ID.Node] = true
	}
	reached := make(map[detector.HolderID]bool)
	for _, l := range hops {
		if !with[l.Node] {
			continue
		}
		reported[l.Node] = true
		switch {
		case l.Kind == cluster.NextHopHolder && slices.ContainsFunc(holders, func(b detector.Binding) bool { return isOwn(l, b) }):
			reached[l.Holder] = true
		case l.Kind != cluster.NextHopNode || !with[l.NextHop.Node]:
			return nil
		}
	}
	dark := make(map[int]bool)
	for n, b := range holders {
		if !reported[b.Holder.ID.Node] {
			return nil
		}
		dark[n] = !reached[b.Holder.ID]
	}
	return dark
}

// isOwn says whether a lead is its node's to this holder by the holder's own interface.
func isOwn(l NextHop, b detector.Binding) bool {
	return l.Node == l.Holder.Node && l.Holder == b.Holder.ID && l.Device == b.Holder.InterfaceName && l.Device != ""
}

// replaced returns the holders whose pod's name belongs to a later sandbox: of one name there
// is one pod at a time, and on one node it has one sandbox.
func replaced(holders []detector.Binding) map[int]bool {
	found := make(map[int]bool)
	for n, b := range holders {
		for _, later := range holders {
			if supersedes(later, b) && !b.Holder.CreatedAt.IsZero() && b.Holder.CreatedAt.Add(createdGap(b, later)).Before(later.Holder.CreatedAt) {
				found[n] = true
			}
		}
	}
	return found
}

// follows says whether of two holders the later one has taken the other's place. Two nodes may
// both run one pod, and a UID that is not known may be that of both.
func supersedes(a, b detector.Binding) bool {
	x, y := a.Holder.Pod.UID, b.Holder.Pod.UID
	return sameName(a, b) && (a.Holder.ID.Node == b.Holder.ID.Node || x != "" && y != "" && x != y)
}

// twins says whether two nodes run one pod: the API server gives a pod to one. A clone makes its
// sandboxes later, or earlier where the original was started again, so that age tells nothing.
func samePod(a, b detector.Binding) bool {
	return sameName(a, b) && a.Holder.ID.Node != b.Holder.ID.Node && a.Holder.Pod.UID == b.Holder.Pod.UID &&
		a.Holder.Pod.UID != "" && !a.Holder.Sandbox.Stopped && !b.Holder.Sandbox.Stopped
}

func sameName(a, b detector.Binding) bool {
	return a.Holder.ID != b.Holder.ID && a.Holder.Pod.Name != "" &&
		a.Holder.Pod.Name == b.Holder.Pod.Name && a.Holder.Pod.Namespace == b.Holder.Pod.Namespace
}

// named counts the holders with the name of this one's pod.
func named(holders []detector.Binding, b detector.Binding) int {
	count := 1
	for _, other := range holders {
		if sameName(b, other) {
			count++
		}
	}
	return count
}
