// Package advice says what to do about a conflict: which holder is the newer one, and which command
// removes each holder. It is pure and does not guess: what the holders' agents do not report is
// unknown, or left out.
package advice

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// NextHop is where the node with that NodeID sends packets to the address.
type NextHop struct {
	Node string
	cluster.NextHop
}

// removalRank orders the holders by which should be removed first.
type removalRank int

const (
	rankStopped  removalRank = iota // removing it hurts nobody
	rankReplaced                    // its pod has a later sandbox
	rankNotGiven                    // nobody gave it the address, but another holder was given it
	rankNewer
	rankDark // no node sends packets to it
	rankOther
	rankNode // a node is never removed because of an address
)

var reasons = map[removalRank]string{
	rankStopped: "stopped", rankReplaced: "replaced", rankNotGiven: "not-given", rankNewer: "newer", rankDark: "dark",
}

// Of returns what to do about a confirmed conflict, nil if it has fewer than two holders. names has
// the names of the nodes by NodeID, away those that were lost for a while and came back.
func Of(c detector.Conflict, hops []NextHop, names map[string]string, away map[string][]Away) *api.Advice {
	var live, gone []int
	for n, b := range c.Holders {
		if b.Gone {
			gone = append(gone, n)
		} else {
			live = append(live, n)
		}
	}
	switch {
	case len(c.Holders) < 2:
		return nil // another node may send any conflict
	case len(live) < 2:
		return &api.Advice{Unknown: "gone", Held: gone, Remove: []api.Removal{}}
	case len(gone) == 0:
		return amongLive(c, hops, names, away)
	}
	all := c.Holders
	c.Holders = nil
	for _, n := range live {
		c.Holders = append(c.Holders, all[n])
	}
	a := amongLive(c, hops, names, away)
	if a.Newer != nil {
		*a.Newer, *a.Than = live[*a.Newer], live[*a.Than]
	}
	for n, holder := range a.Held {
		a.Held[n] = live[holder]
	}
	if w := a.Away; w != nil {
		w.Elder, w.Newer = live[w.Elder], live[w.Newer]
	}
	for n := range a.Remove {
		a.Remove[n].Holder = live[a.Remove[n].Holder]
	}
	return a
}

// amongLive is Of for a conflict whose holders are all live.
func amongLive(c detector.Conflict, hops []NextHop, names map[string]string, away map[string][]Away) *api.Advice {
	if unknown, because := withheld(c.Holders); unknown != "" {
		return &api.Advice{Unknown: unknown, Held: because, Remove: []api.Removal{}}
	}
	a := newest(c.Holders)
	a.GivenByNodes = a.Newer != nil && onlyOthersObject(c.Holders, c.Holders[*a.Newer])
	meetAgain(a, c.Holders, names, away)
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
		case c.Holders[holder].Holder.Given == detector.GivenNo && slices.ContainsFunc(c.Holders, isGiven):
			return rankNotGiven
		case a.Newer != nil && *a.Newer == holder:
			return rankNewer
		case a.Newer == nil && dark[holder]:
			return rankDark
		}
		return rankOther
	}
	order := byAge(c.Holders)
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(rank(x), rank(y)) })
	host := rank(order[len(order)-1]) == rankNode
	for n, holder := range order {
		b := c.Holders[holder]
		r := api.Removal{Holder: holder, Because: reasons[rank(holder)]}
		if host && n == 0 && rank(holder) > rankReplaced && rank(holder) != rankNode {
			r.Because = "pod"
		}
		if b.Evidence != detector.Host {
			ambiguous := slices.ContainsFunc(c.Holders, func(other detector.Binding) bool { return sameName(b, other) })
			r.Command, r.On = command(b, ambiguous, rank(holder) == rankNewer, names)
			r.Then = flushes(b, hops, names)
		}
		a.Remove = append(a.Remove, r)
	}
	return a
}

func isGiven(b detector.Binding) bool { return b.Holder.Given == detector.GivenYes }

// onlyOthersObject reports whether the newest holder was given the address, and all others that may be right are on other
// nodes: what these report does not make it the one to remove. Holders that were not given the address come before it anyway.
func onlyOthersObject(holders []detector.Binding, newest detector.Binding) bool {
	return isGiven(newest) && !slices.ContainsFunc(holders, func(b detector.Binding) bool {
		return b.Holder.ID != newest.Holder.ID && b.Holder.ID.Node == newest.Holder.ID.Node && b.Holder.Given != detector.GivenNo
	}) && slices.ContainsFunc(holders, func(b detector.Binding) bool {
		return b.Holder.ID != newest.Holder.ID && b.Holder.Given != detector.GivenNo
	})
}

// withheld returns why no holder should be removed now, and the holders that cause it; empty if
// there is no reason. If a holder's node is unreachable, the holder may be dead and another one the
// only one alive. If two nodes run one pod, one of the nodes has to go.
func withheld(holders []detector.Binding) (unknown string, because []int) {
	var lost, twice []int
	for n, b := range holders {
		if b.Unreachable {
			lost = append(lost, n)
		}
		if slices.ContainsFunc(holders, func(other detector.Binding) bool { return samePod(b, other) }) {
			twice = append(twice, n)
		}
	}
	switch {
	case lost != nil:
		return "unreachable", lost
	case twice != nil:
		return "two-nodes", twice
	}
	return "", nil
}

// unreached returns the holders that no holder's node sends packets to. It is empty unless all
// these nodes reported a next hop: to their own holder by the holder's own interface, or to another
// of these nodes. A next hop over a bridge does not count: it is the neighbour entry of the node,
// and the pods there have their own.
func unreached(holders []detector.Binding, hops []NextHop) map[int]bool {
	nodes, reported := make(map[string]bool), make(map[string]bool)
	for _, b := range holders {
		nodes[b.Holder.ID.Node] = true
	}
	reached := make(map[detector.HolderID]bool)
	for _, h := range hops {
		if !nodes[h.Node] {
			continue
		}
		reported[h.Node] = true
		switch {
		case h.Kind == cluster.NextHopHolder && slices.ContainsFunc(holders, func(b detector.Binding) bool { return isOwn(h, b) }):
			reached[h.Holder] = true
		case h.Kind != cluster.NextHopNode || !nodes[h.NextHop.Node]:
			return nil
		}
	}
	if len(reported) < len(nodes) {
		return nil
	}
	dark := make(map[int]bool)
	for n, b := range holders {
		dark[n] = !reached[b.Holder.ID]
	}
	return dark
}

// isOwn reports whether a node's next hop is its own holder b, by the holder's own interface.
func isOwn(h NextHop, b detector.Binding) bool {
	return h.Node == h.Holder.Node && h.Holder == b.Holder.ID && h.Device == b.Holder.InterfaceName && h.Device != ""
}

// replaced returns the holders whose pod name belongs to a later sandbox: one name is one pod at a
// time, and on one node a pod has one sandbox.
func replaced(holders []detector.Binding) map[int]bool {
	found := make(map[int]bool)
	for n, b := range holders {
		found[n] = !b.Holder.CreatedAt.IsZero() && slices.ContainsFunc(holders, func(later detector.Binding) bool {
			return supersedes(later, b) && later.Holder.CreatedAt.After(b.Holder.CreatedAt.Add(createdGap(b, later)))
		})
	}
	return found
}

// supersedes reports whether the later one of two holders has replaced the other. Two nodes may both run one pod, and if a UID
// is unknown it may be the same on both. What another node says of its pod does not make this one left over if its own node
// has given it the address.
func supersedes(later, b detector.Binding) bool {
	x, y := later.Holder.Pod.UID, b.Holder.Pod.UID
	return sameName(later, b) && (later.Holder.ID.Node == b.Holder.ID.Node || x != "" && y != "" && x != y && !isGiven(b))
}

// samePod reports whether two nodes run one pod. The API server gives a pod to one node, so one of the
// two is a clone. Age does not tell which: the original may have been restarted after cloning.
func samePod(a, b detector.Binding) bool {
	return sameName(a, b) && a.Holder.ID.Node != b.Holder.ID.Node && a.Holder.Pod.UID == b.Holder.Pod.UID &&
		a.Holder.Pod.UID != "" && !a.Holder.Sandbox.Stopped && !b.Holder.Sandbox.Stopped
}

func sameName(a, b detector.Binding) bool {
	return a.Holder.ID != b.Holder.ID && a.Holder.Pod.Name != "" &&
		a.Holder.Pod.Name == b.Holder.Pod.Name && a.Holder.Pod.Namespace == b.Holder.Pod.Namespace
}
