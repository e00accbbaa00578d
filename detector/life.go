package detector

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// previousGeneration marks the generations of a previous agent, because each agent counts from 1.
const previousGeneration = 1 << 31

// conflicts has the life of each conflict: suspected, confirmed, resolved. It must not know how a holder was seen.
type conflicts struct {
	table      *table
	verifier   *verifier
	open       map[*entry]struct{}
	history    history
	migrations migrations
	budget     Budget // nil: no round waits
	queues     queues
	counts     Counts  // Suspected, Confirmed, Faded and Resolved
	events     []Event // not taken yet
}

// advance brings the conflict of an entry up to date with its bindings.
func (l *conflicts) advance(e *entry, now time.Time) {
	l.follow(e, now)
	l.queue(e, now)
}

// queue has a conflict wait for the round that a holder of it needs.
func (l *conflicts) queue(e *entry, now time.Time) {
	if !l.verifier.queues {
		return
	}
	l.queues.count(e)
	if e.conflict == nil {
		return
	}
	needed, first := false, false
	for _, b := range e.bindings {
		if k := b.check; k != nil && k.phase == queued {
			needed, first = true, first || !k.proven
		}
	}
	if needed {
		l.queues.wait(e, l.table.opts.Node, e.conflict.state == Confirmed && !first, false, now)
	} else {
		leave(e)
	}
}

// admit begins the rounds that the budget has room for.
func (l *conflicts) admit(now time.Time) {
	for _, a := range [...]*admission{&l.queues.rounds, &l.queues.checks} {
		for t := a.first(now); t != nil; t = a.first(now) {
			l.admitOne(a, t, now)
		}
	}
}

func (l *conflicts) admitOne(a *admission, t *ticket, now time.Time) {
	e, again := t.entry, time.Time{}
	var probes []Probe
	var list []*binding
	for _, b := range e.bindings {
		if !b.counts() || !b.check.joins(now) {
			continue
		}
		if list = append(list, b); !b.remote {
			probes = append(probes, l.verifier.probeOf(b))
		}
	}
	if !t.check {
		again = now.Add(l.verifier.overlapOf(e.counting()...))
	}
	if until, all := l.budget.Reserve(probes, again, now, t.yields(now)); !until.IsZero() {
		a.postpone(t, until, all)
		return
	}
	a.serve(t, now)
	e.conflict.round = now
	for _, b := range list {
		l.verifier.start(b, now)
	}
	l.queues.count(e)
	l.table.settle(e, now)
}

// follow does what advance does, but for the queue.
func (l *conflicts) follow(e *entry, now time.Time) {
	if e.conflict != nil {
		e.conflict.lose(e.ceased)
	}
	for {
		if e.conflict == nil {
			if e.shared || len(e.bindings) < 2 {
				return
			}
			list := e.counting()
			if !enough(list) {
				return
			}
			l.suspect(e, list, now)
		}
		if !l.step(e, now) {
			return
		}
	}
}

// step does what is due for an open conflict. It reports whether the conflict changed its state.
// If so, the caller calls it again.
func (l *conflicts) step(e *entry, now time.Time) bool {
	c, list := e.conflict, e.counting()
	c.wake = time.Time{}
	for _, b := range list {
		if b.check == nil {
			b.check = new(check)
			l.verifier.begin(b, now)
		}
	}
	live, proven := list, l.verifier.proven(list)
	if c.state == Confirmed {
		live = proven
		for _, b := range live {
			b.check.proven = true
		}
	}
	if enough(live) {
		c.belowSince = time.Time{}
	} else {
		end := l.endOf(c, list, now)
		if !end.After(now) {
			l.end(e, c.ending(), now)
			return true
		}
		c.wake = end
	}
	if c.state == Suspected && !c.restoredAt.IsZero() || enough(live) {
		l.publish(e, live, now)
	}
	if c.state == Suspected && (enough(proven) || c.migration != "") {
		if wait := stragglerUntil(list, c.round, now); !wait.IsZero() && c.migration == "" {
			c.wake = schedule.Earlier(c.wake, wait)
			return false
		}
		if !l.migrates(e, list, now) {
			l.confirm(e, proven, now)
			return true
		}
	}
	began, next := l.verifier.rounds(list, c.state == Confirmed, c.round, c.pause(list, now), now)
	c.round, c.wake = began, schedule.Earlier(c.wake, next)
	return false
}

func (l *conflicts) suspect(e *entry, list []*binding, now time.Time) {
	c := &conflict{id: conflictID(e.key, e.occurrences+1), state: Suspected, suspectedAt: now, round: now}
	e.conflict, e.faded = c, ""
	l.open[e] = struct{}{}
	c.list(list)

	byArrival := slices.SortedFunc(slices.Values(list), func(a, b *binding) int {
		return cmp.Or(a.counted.Compare(b.counted), compareBindings(a, b))
	})
	second := byArrival[1]
	c.secondSeen = second.counted
	l.countsOf(e).Suspected++
	l.event(e, EventSuspected, now, fmt.Sprintf("%s has it too (%s)", second, second.evidence))
}

// endOf returns when a conflict ends if no second holder comes back.
func (l *conflicts) endOf(c *conflict, list []*binding, now time.Time) time.Time {
	if c.state == Suspected {
		end := c.awaitedUntil(list)
		for _, b := range list {
			// A holder of this node is found silent as well, not only the other one: as long as it is known it is not leased anew when it
			// answers.
			if !b.check.sent.IsZero() && b.check.phase == probing {
				end = schedule.Later(end, b.check.due())
			}
		}
		return end
	}
	if c.belowSince.IsZero() {
		c.belowSince = now
	}
	end := c.belowSince.Add(resolveTime)
	mayAnswer := slices.DeleteFunc(slices.Clone(list), func(b *binding) bool {
		return b.check.latest.IsZero() && b.check.phase != probing && b.check.phase != queued
	})
	if enough(mayAnswer) {
		// A second holder may be back: the end is postponed once, by the time of two rounds, and of the answer of one that is asked again
		// because the other's came too late.
		end = end.Add(l.verifier.overlapOf(mayAnswer...) + 3*AnswerTime)
	}
	return end
}

// publish updates the list of holders. An event reports holders that joined, were lost or have got a name. While
// a restored conflict is suspected, those that it waits for stay in the list.
func (l *conflicts) publish(e *entry, live []*binding, now time.Time) {
	c := e.conflict
	reason := c.lost
	var lost []Binding
	c.listed = slices.DeleteFunc(c.listed, func(h listing) bool {
		if slices.ContainsFunc(live, func(b *binding) bool { return b.holder.ID == h.last.Holder.ID }) ||
			c.state != Confirmed && c.restoredHolder(h.last.Holder.ID) != nil {
			return false
		}
		lost = append(lost, h.binding())
		return true
	})
	changed := len(lost) > 0
	for _, b := range live {
		i := slices.IndexFunc(c.listed, func(h listing) bool { return h.last.Holder.ID == b.holder.ID })
		if i >= 0 {
			h := &c.listed[i]
			h.live = b
			if name := named(h.last.Holder, b.holder); name != "" && c.state == Confirmed {
				reason, changed, h.last = name, true, b.public()
			}
			continue
		}
		c.listed = append(c.listed, listing{live: b, last: b.public()})
		reason, changed = b.String()+" has it too", true
	}
	if changed {
		l.event(e, EventChanged, now, reason)
		l.events[len(l.events)-1].Lost = lost
	}
}

func (l *conflicts) confirm(e *entry, group []*binding, now time.Time) {
	c := e.conflict
	c.state = Confirmed
	c.list(group)
	c.overlap = time.Duration(math.MaxInt64)
	for _, b := range group {
		b.check.proven = true
		with := l.verifier.overlapOf(group...)
		for _, o := range group {
			with = max(with, b.check.togetherWith(o.check))
		}
		c.overlap = min(c.overlap, with)
	}
	reason := c.proof(strconv.Itoa(len(group)) + " live holders")
	if c.wasConfirmedBefore() { // it keeps its time; the previous agent counted it
		reason = "verified again after the agent's restart: " + reason
	} else {
		c.confirmedAt = now
		l.countsOf(e).Confirmed[scopeOf(c.public(e).Holders)]++
	}
	l.event(e, EventConfirmed, now, reason)
}

// end resolves a conflict that this agent or a previous one confirmed. A suspicion fades.
func (l *conflicts) end(e *entry, why string, now time.Time) {
	c := e.conflict
	if c.confirmedAt.IsZero() {
		e.faded = why
		l.event(e, EventFaded, now, why)
		l.countsOf(e).Faded++
	} else {
		c.state = Resolved
		l.event(e, EventResolved, now, why)
		last := &l.events[len(l.events)-1].Conflict
		last.ResolvedAt = now
		l.countsOf(e).Resolved++
		l.table.setOccurrences(e, e.occurrences+1)
		l.remember(e, *last)
	}
	for _, b := range e.bindings {
		b.check = nil
	}
	e.conflict = nil
	leave(e)
	delete(l.open, e)
}

func (l *conflicts) event(e *entry, kind EventKind, now time.Time, reason string) {
	e.record(now, HolderID{}, noteConflict, string(kind)+": "+reason)
	l.events = append(l.events, Event{
		Kind: kind, At: now, Conflict: e.conflict.public(e), Reason: reason, Restored: e.conflict.wasConfirmedBefore(),
	})
}

// remember adds a resolved conflict to the history, which may drop another one.
func (l *conflicts) remember(e *entry, c Conflict) {
	l.history.add(e, c)
	l.trim()
}

// trim shortens the history to its limit.
func (l *conflicts) trim() {
	for e := l.history.drop(l.table.opts.MaxHistory); e != nil; e = l.history.drop(l.table.opts.MaxHistory) {
		if len(e.bindings) == 0 && e.conflict == nil {
			l.table.retire(e)
		}
	}
}

// countsOf returns where the steps of an entry's conflict are counted; nobody reads those of drills.
func (l *conflicts) countsOf(e *entry) *Counts {
	if e.conflict.isDrill(e) {
		return new(newCounts())
	}
	return &l.counts
}

// reopen opens a conflict of a previous agent. It will be verified again.
func (l *conflicts) reopen(e *entry, r Conflict, now time.Time) {
	c := &conflict{
		id: r.ID, state: Suspected, secondSeen: r.SecondSeen, suspectedAt: r.SuspectedAt, confirmedAt: r.ConfirmedAt,
		restoredAt: now, previous: r.Holders, round: now,
	}
	for i := range r.Holders {
		id := &r.Holders[i].Holder.ID
		if id.Node != l.table.opts.Node {
			c.wasRemote = true
		} else if id.Netns == 0 {
			id.Generation |= previousGeneration
		}
		c.listed = append(c.listed, listing{last: r.Holders[i]})
	}
	e.conflict = c
	l.open[e] = struct{}{}
	e.record(now, HolderID{}, noteConflict, "restored: "+r.State.String()+" before the agent's restart, to be verified again")
}

// endShared ends an open conflict of a shared key.
func (l *conflicts) endShared(e *entry, now time.Time) {
	if e.conflict != nil && e.shared {
		l.end(e, "declared shared", now)
		e.faded = "" // the verdict already says that the address is shared
	}
}

// describe changes the description of holders in an open conflict: lost ones are in no table.
func (l *conflicts) describe(e *entry, f func(Key, *Holder), now time.Time) {
	c := e.conflict
	for i := range c.listed {
		h := &c.listed[i].last.Holder
		was := *h
		if f(e.key, h); c.state == Confirmed {
			if name := named(was, *h); name != "" {
				l.event(e, EventChanged, now, name)
			}
		}
	}
	for i := range c.previous {
		f(e.key, &c.previous[i].Holder)
	}
}
