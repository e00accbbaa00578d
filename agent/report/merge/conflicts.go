package merge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/schedule"
)

// Conflicts joins the records that several nodes have of the same conflict: first the open
// conflicts, the gravest first, then the resolved ones, the latest first. It also returns how many
// records were left out.
func Conflicts(answers []cluster.Answer, rules Rules) ([]detector.Conflict, int) {
	type name struct {
		domain
		id string
	}
	named, groups := make(map[name][]*group), make(map[domain][]*group)
	var order []domain
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
			one := newGroup(id, c)
			at := name{rules.domain(c.Key, id), c.ID}
			if joined := join(named[at], one); len(joined) == len(named[at]) {
				continue
			} else if len(joined) <= maxJoined {
				named[at] = joined
			}
			if groups[at.domain] == nil {
				order = append(order, at.domain)
			}
			groups[at.domain] = append(groups[at.domain], one)
		}
	}
	var list []detector.Conflict
	for _, at := range order {
		for _, g := range joinByHolder(groups[at]) {
			list = append(list, g.conflict())
		}
	}
	slices.SortFunc(list, compareConflicts)
	return list, omitted
}

// acceptable reports whether a member may report a conflict: one of its own holders is in it. This
// agent's own conflicts are always accepted.
func acceptable(m cluster.Member, c detector.Conflict) bool {
	return m.Self || c.Key.IP.IsValid() && c.State >= detector.Suspected && c.State <= detector.Resolved &&
		slices.ContainsFunc(c.Holders, func(b detector.Binding) bool {
			// Only the name is compared: the history reaches back before the last boot.
			return cluster.NodeName(b.Holder.ID.Node) == m.Name
		})
}

func compareConflicts(a, b detector.Conflict) int {
	byKey := cmp.Or(a.Key.Compare(b.Key), strings.Compare(a.ID, b.ID))
	if a.State == detector.Resolved && b.State == detector.Resolved {
		return cmp.Or(b.ResolvedAt.Compare(a.ResolvedAt), byKey)
	}
	return cmp.Or(
		cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(len(b.Holders), len(a.Holders)), a.SuspectedAt.Compare(b.SuspectedAt), byKey,
	)
}

// rankOf is lower for graver conflicts: more depends on a node's address than on a pod's.
func rankOf(c detector.Conflict) (rank int) {
	for _, less := range []bool{c.State == detector.Resolved, c.IsDrill(), c.State != detector.Confirmed, c.Scope != detector.PodHost} {
		if rank *= 2; less {
			rank++
		}
	}
	return rank
}

// record is one conflict as one node reports it.
type record struct {
	node string // NodeID
	detector.Conflict
}

// group is a set of records, at most one of each node, that describe one conflict.
type group struct {
	id       string
	records  []record
	nodes    map[string]bool
	holders  map[detector.HolderID]bool
	from, to time.Time // when it was open; zero to: it still is
}

func newGroup(node string, c detector.Conflict) *group {
	g := &group{
		id: c.ID, records: []record{{node, c}}, nodes: map[string]bool{node: true},
		holders: make(map[detector.HolderID]bool), from: c.SuspectedAt,
	}
	if c.State == detector.Resolved {
		g.to = c.ResolvedAt
	}
	for _, b := range c.Holders {
		g.holders[b.Holder.ID] = true
	}
	return g
}

// maxJoined limits the groups of one address, or with one ID, that are compared with each other.
const maxJoined = 256

// join adds a group to the first one that is the same conflict, or to the list.
func join(groups []*group, g *group) []*group {
	n := slices.IndexFunc(groups, g.matches)
	if n < 0 {
		return append(groups, g)
	}
	groups[n].add(g)
	return groups
}

// joinByHolder joins groups of different IDs: a node that does not know of earlier conflicts of
// the address numbers the next one differently.
func joinByHolder(groups []*group) (joined []*group) {
	if len(groups) > maxJoined {
		return groups
	}
	for _, g := range groups {
		joined = join(joined, g)
	}
	return joined
}

// matches reports whether two groups are one conflict: both were open at one time, they have the ID
// or a holder in common, and no node has a record in both.
func (g *group) matches(other *group) bool {
	return (g.to.IsZero() || !other.from.After(g.to)) && (other.to.IsZero() || !g.from.After(other.to)) &&
		!overlap(g.nodes, other.nodes) && (g.id == other.id || overlap(g.holders, other.holders))
}

func overlap[K comparable](a, b map[K]bool) bool {
	for k := range b {
		if a[k] {
			return true
		}
	}
	return false
}

func (g *group) add(other *group) {
	g.records = append(g.records, other.records...)
	maps.Copy(g.nodes, other.nodes)
	maps.Copy(g.holders, other.holders)
	if other.from.Before(g.from) {
		g.from = other.from
	}
	if g.to.IsZero() || other.to.IsZero() {
		g.to = time.Time{}
	} else if other.to.After(g.to) {
		g.to = other.to
	}
}

// conflict joins the records: all holders, the strongest open state, the earliest times. The
// conflict is resolved only if it is in all records.
func (g *group) conflict() detector.Conflict {
	c := g.records[0].Conflict
	all := make(holders)
	nodes := make(map[string]bool)
	for _, r := range g.records {
		// Resolved has the highest value, but is the weakest state here.
		if c.State == detector.Resolved || r.State == detector.Confirmed {
			c.State = r.State
		}
		if at := schedule.Earlier(c.SuspectedAt, r.SuspectedAt); at != c.SuspectedAt {
			c.SuspectedAt, c.ID = at, r.ID
		}
		c.SecondSeen = schedule.Earlier(c.SecondSeen, r.SecondSeen)
		c.ConfirmedAt = schedule.Earlier(c.ConfirmedAt, r.ConfirmedAt)
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
	if c.State != detector.Suspected {
		c.Pending = ""
	}
	return c
}
