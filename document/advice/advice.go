// Package advice says what to do about a conflict: which holder is the newer one, and which command
// removes each holder. It is pure and does not guess: what the holders' agents do not report is
// unknown, or left out.
package advice

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

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
func Of(c document.Conflict, names map[string]string, away map[string][]Away) *document.Advice {
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
		return &document.Advice{Unknown: "gone", Held: gone, Remove: []document.Removal{}}
	case len(gone) == 0:
		return amongLive(c.Holders, c.Routes, names, away)
	}
	holders, routes := make([]document.Binding, 0, len(live)), slices.Clone(c.Routes)
	for _, n := range live {
		holders = append(holders, c.Holders[n])
	}
	for i := range routes {
		if r := &routes[i]; r.Holder != nil {
			n := slices.Index(live, *r.Holder)
			if r.Holder = &n; n < 0 {
				r.To, r.Holder = document.ToDevice, nil
			}
		}
	}
	a := amongLive(holders, routes, names, away)
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

// amongLive is Of for holders that are all live.
func amongLive(holders []document.Binding, routes []document.Route, names map[string]string, away map[string][]Away) *document.Advice {
	if unknown, because := withheld(holders); unknown != "" {
		return &document.Advice{Unknown: unknown, Held: because, Remove: []document.Removal{}}
	}
	a := newest(holders)
	a.GivenByNodes = a.Newer != nil && onlyOthersObject(holders, holders[*a.Newer])
	meetAgain(a, holders, names, away)
	dark := unreached(holders, routes)
	replacedBy := replaced(holders)
	rank := func(holder int) removalRank {
		b := holders[holder]
		switch {
		case b.Evidence == detector.Host:
			return rankNode
		case pod(b).Stopped:
			return rankStopped
		case replacedBy[holder]:
			return rankReplaced
		case b.Given == detector.GivenNo && slices.ContainsFunc(holders, isGiven):
			return rankNotGiven
		case a.Newer != nil && *a.Newer == holder:
			return rankNewer
		case a.Newer == nil && dark[holder]:
			return rankDark
		}
		return rankOther
	}
	order := byAge(holders)
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(rank(x), rank(y)) })
	host := rank(order[len(order)-1]) == rankNode
	for n, holder := range order {
		b := holders[holder]
		r := document.Removal{Holder: holder, Because: reasons[rank(holder)]}
		if host && n == 0 && rank(holder) > rankReplaced && rank(holder) != rankNode {
			r.Because = "pod"
		}
		if b.Evidence != detector.Host {
			ambiguous := slices.ContainsFunc(holders, func(other document.Binding) bool { return sameName(b, other) })
			r.Command, r.On = command(b, ambiguous, rank(holder) == rankNewer, names)
			r.Then = flushes(b, holder, routes, names)
		}
		a.Remove = append(a.Remove, r)
	}
	return a
}

// pod is that of a holder, the zero value if it is unknown.
func pod(b document.Binding) document.Pod {
	if b.Pod == nil {
		return document.Pod{}
	}
	return *b.Pod
}

func isGiven(b document.Binding) bool { return b.Given == detector.GivenYes }

// onlyOthersObject reports whether the newest holder was given the address, and all others that may be right are on other
// nodes: what these report does not make it the one to remove. Holders that were not given the address come before it anyway.
func onlyOthersObject(holders []document.Binding, newest document.Binding) bool {
	return isGiven(newest) && !slices.ContainsFunc(holders, func(b document.Binding) bool {
		return b.ID() != newest.ID() && b.NodeID() == newest.NodeID() && b.Given != detector.GivenNo
	}) && slices.ContainsFunc(holders, func(b document.Binding) bool {
		return b.ID() != newest.ID() && b.Given != detector.GivenNo
	})
}

// withheld returns why no holder should be removed now, and the holders that cause it; empty if
// there is no reason. If a holder's node is unreachable, the holder may be dead and another one the
// only one alive. If two nodes run one pod, one of the nodes has to go.
func withheld(holders []document.Binding) (unknown string, because []int) {
	var lost, twice []int
	for n, b := range holders {
		if b.Unreachable {
			lost = append(lost, n)
		}
		if slices.ContainsFunc(holders, func(other document.Binding) bool { return samePod(b, other) }) {
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
func unreached(holders []document.Binding, routes []document.Route) map[int]bool {
	nodes, reported, reached := make(map[string]bool), make(map[string]bool), make(map[int]bool)
	for _, b := range holders {
		nodes[b.NodeID()] = true
	}
	for _, r := range routes {
		from := r.NodeID()
		if !nodes[from] {
			continue
		}
		reported[from] = true
		switch {
		case r.Holder != nil && isOwn(r, holders[*r.Holder]):
			reached[*r.Holder] = true
		case r.To != document.ToNode || !nodes[r.ToNodeID()]:
			return nil
		}
	}
	if len(reported) < len(nodes) {
		return nil
	}
	dark := make(map[int]bool)
	for n := range holders {
		dark[n] = !reached[n]
	}
	return dark
}

// isOwn reports whether a node's route leads to its own holder b, by the holder's own interface.
func isOwn(r document.Route, b document.Binding) bool {
	return r.Node == b.Node && r.BootID == b.BootID && r.Device == b.Interface && r.Device != ""
}

// replaced returns the holders whose pod name belongs to a later sandbox: one name is one pod at a
// time, and on one node a pod has one sandbox.
func replaced(holders []document.Binding) map[int]bool {
	found := make(map[int]bool)
	for n, b := range holders {
		found[n] = !pod(b).CreatedAt.IsZero() && slices.ContainsFunc(holders, func(later document.Binding) bool {
			return supersedes(later, b) && pod(later).CreatedAt.After(pod(b).CreatedAt.Add(createdGap(b, later)))
		})
	}
	return found
}

// supersedes reports whether the later one of two holders has replaced the other. Two nodes may both run one pod, and if a UID
// is unknown it may be the same on both. What another node says of its pod does not make this one left over if its own node
// has given it the address.
func supersedes(later, b document.Binding) bool {
	x, y := pod(later).UID, pod(b).UID
	return sameName(later, b) && (later.NodeID() == b.NodeID() || x != "" && y != "" && x != y && !isGiven(b))
}

// samePod reports whether two nodes run one pod. The API server gives a pod to one node, so one of the
// two is a clone. Age does not tell which: the original may have been restarted after cloning.
func samePod(a, b document.Binding) bool {
	return sameName(a, b) && a.NodeID() != b.NodeID() && a.Pod.UID == b.Pod.UID && a.Pod.UID != "" && !a.Pod.Stopped && !b.Pod.Stopped
}

func sameName(a, b document.Binding) bool {
	return a.ID() != b.ID() && pod(a).Name != "" && pod(a).Name == pod(b).Name && a.Pod.Namespace == b.Pod.Namespace
}
