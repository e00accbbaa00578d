package merge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

// record is one conflict as one node reports it.
type record struct {
	node string // NodeID
	self bool   // the node is the one that asks
	document.Conflict
}

func (r record) isOpen() bool { return r.State != detector.Resolved }

// compare orders records, so that the order in which the nodes answered does not matter. What the asking node knows comes first,
// so that others cannot crowd it out.
func (r record) compare(o record) int {
	return cmp.Or(
		selfFirst(r.self, o.self), r.SuspectedAt.Compare(o.SuspectedAt), strings.Compare(r.node, o.node), strings.Compare(r.ID, o.ID),
	)
}

func selfFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// maxCompared limits the records that are compared with one that is resolved.
const maxCompared = 256

// byConflict groups the records of one address by the conflict that they are about.
//
// All open records are about one conflict. A node that does not know of earlier conflicts of the address numbers the next one
// differently, and a conflict may end on one node, and begin again, while it goes on for the others. So a resolved record is about
// the same conflict as one record of each other node: of those with a holder or the ID in common the one that was open together with
// it for longest.
func byConflict(records []record) [][]record {
	slices.SortStableFunc(records, record.compare)
	byID, byHolder := make(map[string][]int), make(map[detector.HolderID][]int)
	for i, r := range records {
		byID[r.ID] = append(byID[r.ID], i)
		for _, b := range r.Holders {
			byHolder[b.ID()] = append(byHolder[b.ID()], i)
		}
	}
	same := newSets(len(records))
	open := slices.IndexFunc(records, record.isOpen)
	for i, r := range records {
		if r.isOpen() {
			same.join(open, i)
			continue
		}
		related := [][]int{byID[r.ID]}
		for _, b := range r.Holders {
			related = append(related, byHolder[b.ID()])
		}
		for _, partner := range partners(records, i, related) {
			same.join(i, partner)
		}
	}
	groups := make(map[int][]record)
	var list [][]record
	for i, r := range records {
		root := same.root(i)
		groups[root] = append(groups[root], r)
	}
	for i := range records { // the first one of a set is its root
		if groups[i] != nil {
			list = append(list, groups[i])
		}
	}
	return list
}

// partners returns the record of each other node that was open together with a resolved record for longest.
func partners(records []record, resolved int, related [][]int) map[string]int {
	r, found, compared := records[resolved], make(map[string]int), 0
	for _, list := range related {
		for _, i := range list {
			if compared++; compared > maxCompared {
				return found
			}
			other := records[i]
			together := r.together(other)
			if other.node == r.node || together < 0 {
				continue
			}
			best, known := found[other.node]
			if !known || cmp.Or(cmp.Compare(together, r.together(records[best])), cmp.Compare(best, i)) > 0 {
				found[other.node] = i
			}
		}
	}
	return found
}

// together returns for how long a resolved record and another one were open at one time; negative if never.
func (r record) together(o record) time.Duration {
	end := r.ResolvedAt
	if !o.isOpen() && o.ResolvedAt.Before(end) {
		end = o.ResolvedAt
	}
	return end.Sub(schedule.Later(r.SuspectedAt, o.SuspectedAt))
}

// joined joins the records of one conflict. The holders are those of the confirmed records, else of the suspected ones, else of the
// resolved ones: a suspicion may have holders that are not proven, and a record that ended may have dead ones, whose interfaces belong
// to others by now. The times are the earliest. ofAddress are all records of the address.
func joined(records, ofAddress []record) document.Conflict {
	var present []record
	for _, state := range []detector.State{detector.Confirmed, detector.Suspected, detector.Resolved} {
		if len(present) == 0 {
			present = slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.State != state })
		}
	}
	c := present[0].Conflict
	all, nodes := make(holders), make(map[string]bool)
	for _, r := range present {
		c.Scope, c.Shared = max(c.Scope, r.Scope), max(c.Shared, r.Shared)
		if a := r.Acknowledged; a != nil && (c.Acknowledged == nil || a.At.After(c.Acknowledged.At)) {
			c.Acknowledged = a
		}
		if r.ResolvedAt.After(c.ResolvedAt) {
			c.ResolvedAt = r.ResolvedAt
		}
		all.add(r.node, r.Holders)
		for _, b := range r.Holders {
			nodes[b.NodeID()] = true
		}
	}
	if c.State == detector.Confirmed {
		all.settle(records, ofAddress)
	}
	for _, r := range records {
		if cmp.Or(r.SuspectedAt.Compare(c.SuspectedAt), strings.Compare(r.ID, c.ID)) < 0 {
			c.SuspectedAt, c.ID = r.SuspectedAt, r.ID
		}
		c.SecondSeen = schedule.Earlier(c.SecondSeen, r.SecondSeen)
		c.ConfirmedAt = schedule.Earlier(c.ConfirmedAt, r.ConfirmedAt)
	}
	c.Holders = all.list()
	if len(nodes) > 1 {
		c.Scope = max(c.Scope, detector.CrossNode)
	}
	if c.State == detector.Suspected {
		c.ConfirmedAt = time.Time{}
	} else {
		c.Pending = ""
	}
	if c.State != detector.Resolved {
		c.ResolvedAt = time.Time{}
	}
	c.Routes = routes(present, c.Holders)
	c.Books = books(present)
	made := detector.Conflict{Key: c.Key(), Scope: c.Scope} // not c.Detector(), which refuses many holders
	for _, b := range c.Holders {
		made.Holders = append(made.Holders, b.Detector())
	}
	c.Drill = made.IsDrill()
	return c
}

// settle adds what other records say of the holders of a confirmed conflict. A suspicion may know more of them. A holder has gone if a
// record of its own node ended after everybody else had seen the holder last.
func (h holders) settle(records, ofAddress []record) {
	for _, r := range records {
		if r.State == detector.Suspected {
			h.add(r.node, slices.DeleteFunc(slices.Clone(r.Holders), func(b document.Binding) bool {
				_, known := h[b.ID()]
				return !known
			}))
		}
	}
	for _, r := range ofAddress {
		for _, b := range r.Holders {
			last, known := h[b.ID()]
			if !r.isOpen() && known && !last.own && b.NodeID() == r.node && last.binding.LastSeen.Before(r.ResolvedAt) {
				last.binding.Gone = true
				h[b.ID()] = last
			}
		}
	}
}

// MaxRoutes limits the routes to one address.
const MaxRoutes = 16

// routes returns where the nodes of holders, and the one that asks, send packets to the address: that one first, then the others by name.
func routes(records []record, holders []document.Binding) (list []document.Route) {
	from := slices.Clone(records)
	slices.SortStableFunc(from, func(a, b record) int { return cmp.Or(selfFirst(a.self, b.self), strings.Compare(a.node, b.node)) })
	known := make(map[string]bool)
	for _, r := range from {
		holds := r.self || slices.ContainsFunc(holders, func(b document.Binding) bool { return b.NodeID() == r.node })
		if len(r.Routes) == 0 || known[r.node] || !holds || len(list) == MaxRoutes {
			continue
		}
		known[r.node] = true
		route := r.Routes[0]
		if route.Holder != nil {
			id := r.Holders[*route.Holder].ID()
			n := slices.IndexFunc(holders, func(b document.Binding) bool { return b.ID() == id })
			if route.Holder = &n; n < 0 {
				route.To, route.Holder = document.ToDevice, nil
			}
		}
		list = append(list, route)
	}
	return list
}

// books returns what the books of all nodes say.
func books(records []record) (list []document.Book) {
	for _, r := range records {
		for _, b := range r.Books {
			if len(list) < MaxRoutes && !slices.ContainsFunc(list, func(o document.Book) bool {
				return o.NodeID() == b.NodeID() && o.Kind == b.Kind && o.CNINetwork == b.CNINetwork
			}) {
				list = append(list, b)
			}
		}
	}
	return list
}

// sets are disjoint sets of indexes. The root of a set is its least index.
type sets []int

func newSets(n int) sets {
	s := make(sets, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (s sets) root(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

func (s sets) join(i, j int) {
	i, j = s.root(i), s.root(j)
	s[max(i, j)] = min(i, j)
}

// Conflicts joins the records that several nodes have of the same conflict: first the open
// conflicts, the gravest first, then the resolved ones, the latest first. It also returns how many
// records were left out.
func Conflicts(answers []document.Answer, rules Rules) ([]document.Conflict, int) {
	records := make(map[domain][]record)
	total, omitted := 0, 0
	for _, a := range answers {
		omitted += a.Omitted
		id := a.NodeID()
		for _, c := range a.Conflicts {
			if !acceptable(&a, &c) {
				continue
			}
			if total++; total > maxConflicts && !a.Self {
				omitted++
				continue
			}
			at := rules.domain(c.Network, c.IP, id)
			records[at] = append(records[at], record{id, a.Self, c})
		}
	}
	var list []document.Conflict
	for _, at := range slices.SortedFunc(maps.Keys(records), domain.compare) {
		for _, same := range byConflict(records[at]) {
			list = append(list, joined(same, records[at]))
		}
	}
	slices.SortStableFunc(list, compareConflicts)
	return list, omitted
}

// acceptable reports whether an agent may report a conflict: one of its own holders is in it. The conflicts of the node that asks are
// always accepted.
func acceptable(a *document.Answer, c *document.Conflict) bool {
	// Only the name is compared: the history reaches back before the last boot.
	return a.Self || slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.Node == a.Node })
}

func compareConflicts(a, b document.Conflict) int {
	byKey := cmp.Or(cmp.Compare(a.Network, b.Network), a.IP.Compare(b.IP), strings.Compare(a.ID, b.ID))
	if a.State == detector.Resolved && b.State == detector.Resolved {
		return cmp.Or(b.ResolvedAt.Compare(a.ResolvedAt), b.SuspectedAt.Compare(a.SuspectedAt), byKey)
	}
	return cmp.Or(
		cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(len(b.Holders), len(a.Holders)), a.SuspectedAt.Compare(b.SuspectedAt), byKey,
	)
}

// rankOf is lower for graver conflicts: more depends on a node's address than on a pod's.
func rankOf(c document.Conflict) (rank int) {
	for _, less := range []bool{c.State == detector.Resolved, c.Drill, c.State != detector.Confirmed, c.Scope < detector.PodHost} {
		if rank *= 2; less {
			rank++
		}
	}
	return rank
}
