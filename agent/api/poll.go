package api

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"
)

const (
	// pollInterval is how long a watch of the cluster waits before it asks again, or pollShare times as long as the answers
	// took, if that is longer: the more nodes, the less often.
	pollInterval = time.Second
	pollShare    = 4
)

// pollConflicts asks all nodes of q again and again, and compares the answers.
func (h *handler) pollConflicts(ctx context.Context, q Query) (iter.Seq[any], error) {
	began := time.Now()
	document, err := h.backend.Conflicts(ctx, q)
	return func(yield func(any) bool) {
		var known []Conflict
		for {
			if err == nil {
				var events []ConflictEvent
				events, known = compare(known, document, time.Now().Round(0))
				for _, event := range events {
					if !yield(event) {
						return
					}
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(pollInterval, pollShare*time.Since(began))):
			}
			began = time.Now()
			document, err = h.backend.Conflicts(ctx, q) // may fail for a while: a node is away, or this agent is busy
		}
	}, err
}

// compare returns what has happened to conflicts, and those that are open now.
func compare(known []Conflict, now Conflicts, at time.Time) (events []ConflictEvent, open []Conflict) {
	byAddress := make(map[Address][]Conflict, len(known))
	for _, c := range known {
		address := Address{c.Network, c.IP}
		byAddress[address] = append(byAddress[address], c)
	}
	add := func(kind string, c Conflict) { events = append(events, ConflictEvent{Type: kind, At: at, Conflict: c}) }
	for _, c := range now.Conflicts {
		address := Address{c.Network, c.IP}
		candidates := byAddress[address]
		n := slices.IndexFunc(candidates, func(before Conflict) bool { return isSame(before, c) })
		if n < 0 {
			add(c.State, c)
			continue
		}
		before := candidates[n]
		byAddress[address] = slices.Delete(candidates, n, n+1)
		switch {
		case before.State != c.State:
			add(c.State, c)
		case !slices.Equal(holders(before), holders(c)):
			add("changed", c)
		}
	}
	open = now.Conflicts
	for _, c := range known {
		if !slices.ContainsFunc(byAddress[Address{c.Network, c.IP}], func(left Conflict) bool { return left.ID == c.ID }) {
			continue
		}
		switch {
		case now.Partial: // its nodes may be those that are silent
			open = append(open, c)
		case c.State == "suspected":
			add("faded", c)
		default:
			add("resolved", c)
		}
	}
	return events, open
}

// isSame reports whether two documents of one address are of one conflict. Its ID may be another one if an earlier record of it
// turns up.
func isSame(a, b Conflict) bool {
	return a.ID == b.ID || slices.ContainsFunc(holders(a), func(holder string) bool { return slices.Contains(holders(b), holder) })
}

// holders identifies the holders of a conflict.
func holders(c Conflict) (ids []string) {
	for _, b := range c.Holders {
		id := fmt.Sprint(b.Node, "/", b.BootID, "/", b.NetnsCookie)
		if b.NetnsCookie == 0 {
			id += fmt.Sprint("/", b.Ifindex, "/", b.Generation)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
