package api

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const (
	// pollInterval is how long a watch of the cluster waits before it asks again; each watch waits pollShare times as long as
	// the answers took, if that is longer: the more nodes, the less often.
	pollInterval = time.Second
	pollShare    = 4
	maxFailures  = 3
	// MaxPolls limits these watches at an agent: a node asks for a few things at a time only.
	MaxPolls = 4
)

// poll gets a document again and again, and yields the events since the last time. The error is that of the first time. It ends
// after maxFailures in a row.
func poll[T, E any](ctx context.Context, interval time.Duration, get func() (T, error), events func(T) []E) (iter.Seq[any], error) {
	began := time.Now()
	doc, err := get()
	if err != nil {
		return nil, err
	}
	return func(yield func(any) bool) {
		for failures := 0; failures < maxFailures; failures++ {
			if err == nil {
				for _, event := range events(doc) {
					if !yield(event) {
						return
					}
				}
				failures = -1
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(interval, pollShare*time.Since(began))):
			}
			began = time.Now()
			doc, err = get()
		}
	}, nil
}

// pollConflicts polls the conflicts of q: of other nodes, or of pods, whose names may come later than the conflict. ctx ends with
// the request.
func (h *handler) pollConflicts(ctx context.Context, q document.Query) (iter.Seq[any], error) {
	// Whether the rest of q is about a conflict is decided after the comparison: one that is over, or has lost a holder, has not
	// ended because the pod that was asked for is not in it any more.
	all := document.Query{IP: q.IP, Prefix: q.Prefix, Network: q.Network, Cluster: q.Cluster, Node: q.Node}
	if !h.polls.TryAcquire(1) {
		return nil, errors.New("too many watches of other nodes, or of pods, are open; close one")
	}
	context.AfterFunc(ctx, func() { h.polls.Release(1) })
	var known []document.Conflict
	return poll(ctx, pollInterval,
		func() (document.Conflicts, error) { return h.backend.Conflicts(ctx, all) },
		func(doc document.Conflicts) (events []document.ConflictEvent) {
			events, known = compare(known, doc, q, time.Now().Round(0))
			return events
		})
}

// compare returns what has happened to the conflicts that q selects, and all that are open now.
func compare(known []document.Conflict, now document.Conflicts, q document.Query, at time.Time) (events []document.ConflictEvent, open []document.Conflict) {
	byAddress := make(map[document.Address][]document.Conflict, len(known))
	for _, c := range known {
		address := document.Address{Network: c.Network, IP: c.IP}
		byAddress[address] = append(byAddress[address], c)
	}
	add := func(kind string, before, c document.Conflict) {
		if q.SelectsConflict(c) || q.SelectsConflict(before) {
			reached := map[string]time.Time{"suspected": c.SuspectedAt, "confirmed": c.ConfirmedAt}[kind]
			events = append(events, document.ConflictEvent{Type: kind, At: cmp.Or(reached, at), Conflict: c})
		}
	}
	for _, c := range now.Conflicts {
		address := document.Address{Network: c.Network, IP: c.IP}
		candidates := byAddress[address]
		n := slices.IndexFunc(candidates, func(before document.Conflict) bool { return isSame(before, c) })
		if n < 0 {
			add(c.State.String(), c, c)
			continue
		}
		before := candidates[n]
		byAddress[address] = slices.Delete(candidates, n, n+1)
		switch {
		case before.State != c.State, !q.SelectsConflict(before) && q.SelectsConflict(c):
			add(c.State.String(), before, c)
		case !maps.Equal(holders(before), holders(c)):
			add("changed", before, c)
		}
	}
	open = now.Conflicts
	for _, c := range known {
		left := byAddress[document.Address{Network: c.Network, IP: c.IP}]
		switch {
		case !slices.ContainsFunc(left, func(other document.Conflict) bool { return other.ID == c.ID }):
		case now.Omitted > 0 || !answered(c, now.Coverage, q.Node):
			open = append(open, c)
		case c.State == detector.Suspected:
			add("faded", c, c)
		default:
			add("resolved", c, c)
		}
	}
	return events, open
}

// answered reports whether the node of any holder was asked and is not missing: it would have the conflict. only is the node that
// was asked, empty for all.
func answered(c document.Conflict, asked document.Coverage, only string) bool {
	return slices.ContainsFunc(c.Holders, func(b document.Binding) bool {
		return (only == "" || b.Node == only) && !asked.Lacks(b)
	})
}

// isSame reports whether two documents of one address are of one conflict. Its ID may be another one if an earlier record of it
// turns up.
func isSame(a, b document.Conflict) bool {
	known := holders(a)
	return a.ID == b.ID || slices.ContainsFunc(b.Holders, func(h document.Binding) bool { return known[h.ID()] })
}

// holders identifies the holders of a conflict.
func holders(c document.Conflict) map[detector.HolderID]bool {
	ids := make(map[detector.HolderID]bool, len(c.Holders))
	for _, b := range c.Holders {
		ids[b.ID()] = true
	}
	return ids
}
