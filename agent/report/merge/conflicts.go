package merge

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// record is one conflict as one node knows it.
type record struct {
	node string // NodeID
	detector.Conflict
}

// Conflicts makes one of what several nodes tell of one conflict: the open ones first,
// the eldest first, then the resolved ones, the newest first. It returns how many
// were left out, too.
func Conflicts(answers []cluster.Answer, rules Rules) ([]detector.Conflict, int) {
	// Where a network ends at the node, so do its conflicts.
	type place struct {
		key  detector.Key
		node string
	}
	groups := make(map[place][]*group)
	var order []place
	total, omitted := 0, 0
	for _, a := range answers {
		omitted += omittedBy(a)
		id := a.Member.NodeID()
		for _, c := range a.Document.Conflicts {
			if !acceptable(a.Member, c) {
				continue
			}
			if total++; total > maxConflicts && !a.Member.Self {
				omitted++
				continue
			}
			at := place{c.Key, ""}
			if !rules.ClusterWide(c.Key.Network) {
				at.node = id
			}
			if groups[at] == nil {
				order = append(order, at)
			}
			groups[at] = addToGroup(groups[at], record{id, c})
		}
	}
	var list []detector.Conflict
	for _, at := range order {
		for _, g := range join(groups[at]) {
			list = append(list, g.conflict())
		}
	}
	slices.SortFunc(list, compareConflicts)
	return list, omitted
}

// credible says whether a member may tell of a conflict: one that it is part of. What
// this agent knows itself is not in question.
func acceptable(m cluster.Member, c detector.Conflict) bool {
	return m.Self || c.Key.IP.IsValid() && c.State >= detector.Suspected && c.State <= detector.Resolved &&
		slices.ContainsFunc(c.Holders, func(b detector.Binding) bool {
			// The name alone: the history reaches back before the last boot.
			return cluster.NodeName(b.Holder.ID.Node) == m.Name
		})
}

func compareConflicts(a, b detector.Conflict) int {
	resolvedA, resolvedB := a.State == detector.Resolved, b.State == detector.Resolved
	switch {
	case resolvedA != resolvedB:
		if resolvedA {
			return 1
		}
		return -1
	case resolvedA:
		return cmp.Or(b.ResolvedAt.Compare(a.ResolvedAt), compareKeys(a.Key, b.Key), strings.Compare(a.ID, b.ID))
	}
	return cmp.Or(a.SuspectedAt.Compare(b.SuspectedAt), compareKeys(a.Key, b.Key), strings.Compare(a.ID, b.ID))
}

// group is what is taken for one conflict.
type group struct {
	id       string
	records  []record
	nodes    map[string]bool
	holders  map[detector.HolderID]bool
	from, to time.Time // when it was open; zero to: it still is
}

// file puts a record into the first group of its id that it goes with.
func addToGroup(groups []*group, r record) []*group {
	one := newGroup(r)
	for _, g := range groups {
		if g.id == r.ID && g.matches(one) {
			g.add(one)
			return groups
		}
	}
	return append(groups, one)
}

// maxJoined bounds the groups of one address that are compared with each other.
const maxJoined = 256

// join unites groups of different ids: nodes that did not hear of each other's former
// conflicts number them differently.
func join(groups []*group) []*group {
	if len(groups) > maxJoined {
		return groups
	}
	var joined []*group
	for _, g := range groups {
		n := slices.IndexFunc(joined, func(other *group) bool { return other.matches(g) })
		if n < 0 {
			joined = append(joined, g)
			continue
		}
		joined[n].add(g)
	}
	return joined
}

func newGroup(r record) *group {
	g := &group{
		id:      r.ID,
		records: []record{r},
		nodes:   map[string]bool{r.node: true},
		holders: make(map[detector.HolderID]bool),
		from:    r.SuspectedAt,
	}
	if r.State == detector.Resolved {
		g.to = r.ResolvedAt
	}
	for _, b := range r.Holders {
		g.holders[b.Holder.ID] = true
	}
	return g
}

// goesWith says whether two groups are one conflict: both were open at one time, and they
// have the id or a holder in common. A node's own records are never one.
func (g *group) matches(other *group) bool {
	if !g.overlaps(other) {
		return false
	}
	for node := range other.nodes {
		if g.nodes[node] {
			return false
		}
	}
	if g.id == other.id {
		return true
	}
	for id := range other.holders {
		if g.holders[id] {
			return true
		}
	}
	return false
}

// overlaps says whether both were open at one time.
func (g *group) overlaps(other *group) bool {
	return (g.to.IsZero() || !other.from.After(g.to)) && (other.to.IsZero() || !g.from.After(other.to))
}

func (g *group) add(other *group) {
	g.records = append(g.records, other.records...)
	for node := range other.nodes {
		g.nodes[node] = true
	}
	for id := range other.holders {
		g.holders[id] = true
	}
	if other.from.Before(g.from) {
		g.from = other.from
	}
	if g.to.IsZero() || other.to.IsZero() {
		g.to = time.Time{}
	} else if other.to.After(g.to) {
		g.to = other.to
	}
}

// conflict unites the records: all holders, the strongest open state, the earliest times.
// It is resolved only if all say so.
func (g *group) conflict() detector.Conflict {
	c := g.records[0].Conflict
	var all holders
	nodes := make(map[string]bool)
	for _, r := range g.records {
		// Resolved is the highest, and the weakest here.
		if c.State == detector.Resolved || r.State == detector.Confirmed {
			c.State = r.State
		}
		if at := earlier(c.SuspectedAt, r.SuspectedAt); at != c.SuspectedAt {
			c.SuspectedAt, c.ID = at, r.ID
		}
		c.SecondSeen = earlier(c.SecondSeen, r.SecondSeen)
		c.ConfirmedAt = earlier(c.ConfirmedAt, r.ConfirmedAt)
		if r.ResolvedAt.After(c.ResolvedAt) {
			c.ResolvedAt = r.ResolvedAt
		}
		c.Scope = max(c.Scope, r.Scope)
		all.add(r.node, r.Holders)
		for _, b := range r.Holders {
			nodes[b.Holder.ID.Node] = true
		}
	}
	c.Holders = all.list()
	if len(nodes) > 1 {
		c.Scope = max(c.Scope, detector.CrossNode)
	}
	if c.State != detector.Resolved {
		c.ResolvedAt = time.Time{}
	}
	return c
}

// earlier returns the earlier of two times of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
