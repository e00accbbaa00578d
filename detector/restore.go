package detector

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// maxRestored limits the open conflicts that are restored.
const maxRestored = 10_000

// Snapshot is the part of a Detector that survives a restart of the agent.
type Snapshot struct {
	// Open has the suspicions and conflicts, ordered by SuspectedAt. A conflict that a previous agent
	// confirmed is Confirmed here, also while it is verified again.
	Open []Conflict
	// History has the resolved conflicts, the oldest first.
	History []Conflict
	// Former has the last holders of the last MaxHistory addresses that lost one, as [Story.Former], but by LastSeen.
	Former []Binding
}

// Snapshot returns copies of all conflicts, for [Detector.Restore]. Unreachable is not set.
func (d *Detector) Snapshot() Snapshot {
	s := Snapshot{Open: make([]Conflict, 0, len(d.conflicts.open)), History: make([]Conflict, 0, len(d.conflicts.history.list))}
	for e := range d.conflicts.open {
		c := e.conflict.public(e)
		c.Pending = "" // is so now
		if at := e.conflict.confirmedAt; !at.IsZero() {
			c.State, c.ConfirmedAt = Confirmed, at
		}
		s.Open = append(s.Open, c)
	}
	slices.SortFunc(s.Open, compareConflicts)
	for _, c := range d.conflicts.history.list {
		s.History = append(s.History, c.clone())
	}
	for _, c := range slices.Concat(s.Open, s.History) {
		for i := range c.Holders {
			c.Holders[i].Unreachable, c.Holders[i].Gone = false, false
		}
	}
	s.Former = allFormer(d.table)
	return s
}

// allFormer returns the last holders on this node of the last MaxHistory keys that lost one, the last one last.
func allFormer(t *table) (list []Binding) {
	for _, e := range t.entries {
		for _, f := range e.former {
			if f.here {
				list = append(list, f.Binding)
			}
		}
	}
	slices.SortFunc(list, func(a, b Binding) int {
		return cmp.Or(b.LastSeen.Compare(a.LastSeen), a.Key.Compare(b.Key), CompareAge(b, a))
	})
	keys := make(map[Key]bool)
	list = slices.DeleteFunc(list, func(b Binding) bool {
		if len(keys) < t.opts.MaxHistory {
			keys[b.Key] = true
		}
		return !keys[b.Key]
	})
	slices.Reverse(list)
	return list
}

// Restore restores the snapshot of a previous agent of the same boot. Call it once, before the first
// sighting.
//
// The history is restored up to MaxHistory. Open conflicts become suspected. When two of their
// holders have been seen again they are verified like any suspicion, and confirmed with their old
// times. A conflict without two live holders is resolved, and a suspicion fades, after 30 s. This takes
// 90 s if a local holder is back and a remote one is awaited, and 10 s for a suspicion about a remote
// holder.
//
// Holders are recognized by their ID, except local ones without a netns.
//
// The values in s must be valid, as package agent/state makes sure. Restore drops conflicts that it has already, that are
// too many or in the wrong list, that have less than two holders or the ID of another key, and returns how many. Times in
// the future become now. It keeps no references to s.
func (d *Detector) Restore(s Snapshot, now time.Time) (fx Effects, dropped int) {
	for _, b := range s.Former {
		if b.FirstSeen, b.LastSeen = inOrder(b, now); !b.LastSeen.IsZero() {
			e := d.table.entryFor(b.Key)
			e.hasStory = true
			e.addFormer(former{Binding: b, here: true})
			d.table.retire(e) // until there is more
		}
	}
	for i, c := range slices.Concat(s.History, s.Open) {
		c, ok := sanitize(c, now)
		isOpen := i >= len(s.History)
		if !ok || isOpen == (c.State == Resolved) || isOpen && len(d.conflicts.open) >= maxRestored {
			dropped++
			continue
		}
		e, occurrence := d.table.entryFor(c.Key), occurrenceOf(c)
		if e.conflict != nil || e.occurrences >= occurrence {
			dropped++
			continue
		}
		e.hasStory = true
		if isOpen {
			d.table.setOccurrences(e, occurrence-1)
			d.conflicts.reopen(e, c, now)
			d.conflicts.endShared(e, now)
			d.update(e, now)
		} else {
			d.table.setOccurrences(e, occurrence)
			d.conflicts.remember(e, c)
		}
	}
	return d.effects(now), dropped
}

// sanitize returns a copy of a conflict whose times are in order and not later than now, because the clock may have been
// set back; false if it is no conflict of its key.
func sanitize(c Conflict, now time.Time) (Conflict, bool) {
	var last time.Time
	for i, at := range [...]*time.Time{&c.SuspectedAt, &c.ConfirmedAt, &c.ResolvedAt} {
		if State(i) >= c.State {
			*at = time.Time{} // not reached
		} else {
			last = schedule.Later(schedule.Earlier(*at, now), last)
			*at = last
		}
	}
	c.SecondSeen = schedule.Earlier(c.SecondSeen, c.SuspectedAt)
	var holders []Binding
	for _, h := range c.Holders {
		if slices.ContainsFunc(holders, func(o Binding) bool { return o.Holder.ID == h.Holder.ID }) {
			continue
		}
		h.FirstSeen, h.LastSeen = inOrder(h, now)
		if h.Holder.CreatedAt.After(now) {
			h.Holder.CreatedAt = time.Time{}
		}
		holders = append(holders, h)
	}
	c.Holders = holders
	return c, len(holders) >= 2 && occurrenceOf(c) > 0
}

// inOrder returns when a holder was seen first and last, which is not later than now.
func inOrder(b Binding, now time.Time) (first, last time.Time) {
	first = schedule.Earlier(b.FirstSeen, now)
	return first, schedule.Later(schedule.Earlier(b.LastSeen, now), first)
}

// occurrenceOf returns the number in the id of a conflict; 0 if it is not an id of its key.
func occurrenceOf(c Conflict) int {
	_, number, _ := strings.Cut(c.ID, "-")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 || c.ID != conflictID(c.Key, int(n)) {
		return 0
	}
	return int(n)
}
