package detector

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

const (
	// resolveTime is how long a conflict stays confirmed with fewer than two live holders.
	resolveTime = 3 * time.Second
	// restoredTime is how long a restored conflict waits for its holders. It is remoteTime if a
	// local holder is back and a remote one is awaited, because the agent has to join the cluster
	// first, and suspicionTime for a suspicion about a remote holder, because keepers name that
	// holder as soon as the local one is leased.
	restoredTime  = 30 * time.Second
	remoteTime    = 90 * time.Second
	suspicionTime = 10 * time.Second

	notFoundAgain = "it was not found again after the agent's restart"
)

// conflict is an open suspicion or conflict. The package comment has its states.
type conflict struct {
	id          string
	state       State // Suspected or Confirmed
	secondSeen  time.Time
	suspectedAt time.Time
	confirmedAt time.Time     // also while one that a previous agent confirmed is verified again
	overlap     time.Duration // how long two holders had the address together, proven at the confirmation

	restoredAt time.Time // zero unless the conflict was restored from a previous agent
	previous   []Binding // the holders that the previous agent knew

	listed     []listing
	lost       string    // why the last holder was lost
	round      time.Time // when all holders were probed last
	belowSince time.Time // confirmed: since when fewer than two holders are live; zero while two are
	wake       time.Time // the next deadline
}

// listing is one holder in the published list. A lost holder stays in the list, with its last state, until
// the list changes next.
type listing struct {
	live *binding // nil once lost
	last Binding
}

// binding returns the last state of the holder's binding.
func (l *listing) binding() Binding {
	if l.live != nil {
		return l.live.public()
	}
	return l.last
}

// advanceConflict brings the conflict of an entry up to date with its bindings.
func (d *Detector) advanceConflict(e *entry, now time.Time, fx *Effects) {
	for {
		if e.conflict == nil {
			if e.shared || len(e.bindings) < 2 {
				return
			}
			list := e.counting()
			if !enough(list) {
				return
			}
			d.suspect(e, list, now, fx)
		}
		if !d.stepConflict(e, now, fx) {
			return
		}
	}
}

// stepConflict does what is due for an open conflict. It reports whether the conflict changed its state.
// If so, the caller calls it again.
func (d *Detector) stepConflict(e *entry, now time.Time, fx *Effects) bool {
	c, list := e.conflict, e.counting()
	c.wake = time.Time{}
	for _, b := range list {
		if b.check == nil {
			b.check = new(check)
			d.startRound(b, now, fx)
		}
	}
	live, proven := list, provenTogether(list, d.opts.MinOverlap)
	if c.state == Confirmed {
		live = proven
		for _, b := range live {
			b.check.proven = true
		}
	}
	if enough(live) {
		c.belowSince = time.Time{}
	} else {
		end := d.endOf(c, list, now)
		if !end.After(now) {
			d.end(e, c.ending(), now, fx)
			return true
		}
		c.wake = end
	}
	if c.state == Suspected && !c.restoredAt.IsZero() || enough(live) {
		d.publish(e, live, now, fx)
	}
	if c.state == Suspected && enough(proven) {
		if wait := c.stragglerUntil(list, now); !wait.IsZero() {
			c.wake = schedule.Earlier(c.wake, wait)
			return false
		}
		d.confirm(e, proven, now, fx)
		return true
	}
	d.nextRound(c, list, now, fx)
	return false
}

func (d *Detector) suspect(e *entry, list []*binding, now time.Time, fx *Effects) {
	c := &conflict{id: conflictID(e.key, e.occurrences+1), state: Suspected, suspectedAt: now, round: now}
	e.conflict, e.faded = c, ""
	d.open[e] = struct{}{}
	c.list(list)

	byArrival := slices.SortedFunc(slices.Values(list), func(a, b *binding) int {
		return cmp.Or(a.counted.Compare(b.counted), compareBindings(a, b))
	})
	second := byArrival[1]
	c.secondSeen = second.counted
	d.countsOf(e).Suspected++
	d.event(e, EventSuspected, now, fmt.Sprintf("%s has it too (%s)", second, second.evidence), fx)
}

// endOf returns when a conflict ends if no second holder comes back.
func (d *Detector) endOf(c *conflict, list []*binding, now time.Time) time.Time {
	if c.state == Suspected {
		end := d.awaitedUntil(c, list)
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
		return b.check.latest.IsZero() && b.check.phase != probing
	})
	if enough(mayAnswer) {
		// A second holder may be back: the end is postponed once, by the time of two rounds, and of the answer of one that is asked again
		// because the other's came too late.
		end = end.Add(d.opts.MinOverlap + 3*AnswerTime)
	}
	return end
}

// awaitedUntil returns until when a restored conflict waits for its holders; zero if the conflict is not
// restored.
func (d *Detector) awaitedUntil(c *conflict, list []*binding) time.Time {
	if c.restoredAt.IsZero() {
		return time.Time{}
	}
	wait := restoredTime
	if slices.ContainsFunc(c.previous, func(b Binding) bool { return b.Holder.ID.Node != d.opts.Node }) {
		switch {
		case c.confirmedAt.IsZero():
			wait = suspicionTime
		case slices.ContainsFunc(list, (*binding).isLocal):
			wait = remoteTime
		}
	}
	return c.restoredAt.Add(wait)
}

// wasConfirmedBefore reports whether a previous agent confirmed the conflict.
func (c *conflict) wasConfirmedBefore() bool {
	return !c.restoredAt.IsZero() && !c.confirmedAt.IsZero() && !c.confirmedAt.After(c.restoredAt)
}

// restoredHolder returns the holder as a previous agent knew it; nil if it did not know it.
func (c *conflict) restoredHolder(id HolderID) *Binding {
	for i := range c.previous {
		if c.previous[i].Holder.ID == id {
			return &c.previous[i]
		}
	}
	return nil
}

// list replaces the listed holders.
func (c *conflict) list(live []*binding) {
	c.listed = c.listed[:0]
	for _, b := range live {
		c.listed = append(c.listed, listing{live: b, last: b.public()})
	}
}

// publish updates the list of holders. An event reports holders that joined, were lost or have got a name. While
// a restored conflict is suspected, those that it waits for stay in the list.
func (d *Detector) publish(e *entry, live []*binding, now time.Time, fx *Effects) {
	c := e.conflict
	reason := c.lost
	var lost []Binding
	c.listed = slices.DeleteFunc(c.listed, func(l listing) bool {
		if slices.ContainsFunc(live, func(b *binding) bool { return b.holder.ID == l.last.Holder.ID }) ||
			c.state != Confirmed && c.restoredHolder(l.last.Holder.ID) != nil {
			return false
		}
		lost = append(lost, l.binding())
		return true
	})
	changed := len(lost) > 0
	for _, b := range live {
		i := slices.IndexFunc(c.listed, func(l listing) bool { return l.last.Holder.ID == b.holder.ID })
		if i >= 0 {
			l := &c.listed[i]
			l.live = b
			if name := named(l.last.Holder, b.holder); name != "" && c.state == Confirmed {
				reason, changed, l.last = name, true, b.public()
			}
			continue
		}
		c.listed = append(c.listed, listing{live: b, last: b.public()})
		reason, changed = b.String()+" has it too", true
	}
	if changed {
		d.event(e, EventChanged, now, reason, fx)
		fx.Events[len(fx.Events)-1].Lost = lost
	}
}

// lose marks a holder as lost; its binding must still have its last state.
func (c *conflict) lose(b *binding, why string) {
	for i := range c.listed {
		if l := &c.listed[i]; l.live == b {
			l.last, l.live = b.public(), nil
			c.lost = why
		}
	}
}

func (d *Detector) confirm(e *entry, group []*binding, now time.Time, fx *Effects) {
	c := e.conflict
	c.state = Confirmed
	c.list(group)
	c.overlap = time.Duration(math.MaxInt64)
	for _, b := range group {
		b.check.proven = true
		with := d.opts.MinOverlap
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
		d.countsOf(e).Confirmed[scopeOf(c.public(e).Holders)]++
	}
	d.event(e, EventConfirmed, now, reason, fx)
}

// ending returns the reason why a conflict with fewer than two live holders ends.
func (c *conflict) ending() string {
	switch {
	case c.state == Confirmed || c.restoredAt.IsZero():
		// If no holder was lost, a holder that looked like a pod is the node itself.
		return cmp.Or(c.lost, "only nodes' own addresses are left")
	case c.lost == "":
		return notFoundAgain
	default:
		return notFoundAgain + ": " + c.lost
	}
}

// end resolves a conflict that this agent or a previous one confirmed. A suspicion fades.
func (d *Detector) end(e *entry, why string, now time.Time, fx *Effects) {
	c := e.conflict
	if c.confirmedAt.IsZero() {
		e.faded = why
		d.event(e, EventFaded, now, why, fx)
		d.countsOf(e).Faded++
	} else {
		c.state = Resolved
		d.event(e, EventResolved, now, why, fx)
		last := &fx.Events[len(fx.Events)-1].Conflict
		last.ResolvedAt = now
		d.countsOf(e).Resolved++
		d.setOccurrences(e, e.occurrences+1)
		d.addToHistory(e, *last)
	}
	for _, b := range e.bindings {
		b.check = nil
	}
	e.conflict = nil
	delete(d.open, e)
}

func (d *Detector) event(e *entry, kind EventKind, now time.Time, reason string, fx *Effects) {
	e.record(now, HolderID{}, noteConflict, string(kind)+": "+reason)
	fx.Events = append(fx.Events, Event{
		Kind: kind, At: now, Conflict: e.conflict.public(e), Reason: reason, Restored: e.conflict.wasConfirmedBefore(),
	})
}

// public returns a copy for callers of the package.
func (c *conflict) public(e *entry) Conflict {
	holders := make([]Binding, 0, len(c.listed))
	for _, l := range c.listed {
		l.last = l.binding()
		l.last.Gone = c.state == Confirmed && (l.live == nil || l.live.check != nil && !l.live.check.silent.IsZero())
		holders = append(holders, l.last)
	}
	slices.SortFunc(holders, CompareAge)
	p := Conflict{
		ID: c.id, Key: e.key, State: c.state, Scope: scopeOf(holders), SecondSeen: c.secondSeen,
		SuspectedAt: c.suspectedAt, ConfirmedAt: c.confirmedAt, Holders: holders,
	}
	if c.state == Suspected {
		p.ConfirmedAt, p.Pending = time.Time{}, c.pending(e.counting())
	}
	return p
}

func (c *conflict) isDrill(e *entry) bool { return e.key.IsForDrills() && new(c.public(e)).IsDrill() }

func scopeOf(holders []Binding) Scope {
	scope := SameNode
	for _, h := range holders {
		if h.Evidence == Host {
			return PodHost
		}
		if h.Holder.ID.Node != holders[0].Holder.ID.Node {
			scope = CrossNode
		}
	}
	return scope
}

func conflictID(key Key, occurrence int) string {
	sum := sha256.Sum256([]byte(key.Network + "|" + key.IP.String()))
	return fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:4]), occurrence)
}

// enough reports whether these holders make a conflict of this node: two of them conflict, and one is
// local.
func enough(list []*binding) bool {
	return conflicting(list) && slices.ContainsFunc(list, (*binding).isLocal)
}

// conflicting reports whether two of these holders must not have the same address. Two nodes may; and nothing of what is
// claimed on another device is anybody's if all only claim it.
func conflicting(list []*binding) bool {
	return len(list) >= 2 && slices.ContainsFunc(list, func(b *binding) bool { return b.evidence != Host }) &&
		slices.ContainsFunc(list, func(b *binding) bool { return b.evidence != Claimed })
}
