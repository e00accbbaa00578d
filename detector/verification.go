package detector

import (
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

const (
	recheckTime  = 5 * time.Second  // between two rounds of a confirmed conflict
	longOpenTime = time.Minute      // a conflict that is open for longer has fewer rounds
	slowRecheck  = 30 * time.Second // between two rounds of such a conflict, while all holders answer
	// pairTime is how far apart the answers of two holders in one round may be: an address that moves to and fro has one holder at a time.
	pairTime = time.Second
	// stragglerTime is how long a confirmation waits for holders of the same round, so that three
	// holders make one event.
	stragglerTime = 100 * time.Millisecond
)

// nextRound probes all holders when it is time, to prove that they have the address together, or to
// check that they still answer. An answer that others can still be paired with is not repeated.
func (d *Detector) nextRound(c *conflict, list []*binding, now time.Time, fx *Effects) {
	pause := d.pause(c, list, now)
	second, next := d.secondRound(c, list, now, fx)
	at := c.round.Add(pause)
	if !at.After(now) || !second.IsZero() {
		c.round, at = now, now.Add(pause)
		for _, b := range list {
			if b.check.phase == resting && !b.check.isCurrent(second, now) {
				d.startRound(b, now, fx)
			}
		}
	}
	c.wake = schedule.Earlier(c.wake, schedule.Earlier(at, next))
}

// isCurrent reports whether the latest answer belongs to the round that was due at a time, and others can still be paired with it.
func (c *check) isCurrent(round, now time.Time) bool {
	return !round.IsZero() && !c.asked.Before(round) && now.Sub(c.latest) <= pairTime
}

// pause returns the time between two rounds. Probes cost the pods' network a few frames, so there are
// fewer rounds once a conflict has been open for a while, unless a holder is silent. A suspicion that
// waits for a holder that cannot be probed has rounds as well: it ends when the others do not answer.
func (d *Detector) pause(c *conflict, list []*binding, now time.Time) time.Duration {
	silent := slices.ContainsFunc(list, func(b *binding) bool { return !b.check.silent.IsZero() })
	switch {
	case c.state == Suspected && !now.Before(d.awaitedUntil(c, list)):
		return slowRecheck
	case c.state == Confirmed && !silent && now.Sub(schedule.Later(c.confirmedAt, c.restoredAt)) >= longOpenTime:
		return slowRecheck
	default:
		return recheckTime
	}
}

// secondRound returns since when a second round is due that can prove that two holders have the address together, zero if none is, and
// when the next one will be. If the last answers of two holders are too far apart to be paired, the one that answered first is probed again.
func (d *Detector) secondRound(c *conflict, list []*binding, now time.Time, fx *Effects) (due, next time.Time) {
	for i, x := range list {
		for _, y := range list[:i] {
			if !c.isOpen(x, y) || x.check.latest.IsZero() || y.check.latest.IsZero() {
				continue
			}
			first, second := x, y
			if second.check.latest.Before(first.check.latest) {
				first, second = second, first
			}
			since := x.check.since[y.check]
			switch at := since.Add(d.opts.MinOverlap); {
			case !since.IsZero() && at.After(now):
				next = schedule.Earlier(next, at)
			case !since.IsZero() && (x.check.phase == resting && !x.check.isCurrent(at, now) || y.check.phase == resting && !y.check.isCurrent(at, now)):
				due = schedule.Earlier(due, at)
			case since.IsZero() && first.check.phase == resting && second.check.latest.Sub(first.check.latest) > pairTime:
				d.startRound(first, now, fx)
			}
		}
	}
	if !due.IsZero() && !next.IsZero() && !next.After(due.Add(stragglerTime)) {
		return time.Time{}, next // one round serves both
	}
	return due, next
}

// isOpen reports whether it is open whether two holders have the address together, and worth to know.
func (c *conflict) isOpen(x, y *binding) bool {
	if c.state == Suspected {
		return enough([]*binding{x, y})
	}
	return conflicting([]*binding{x, y}) && (x.isNewcomer() || y.isNewcomer())
}

// provenTogether returns the holders that were proven before, or that had the address at the same time as
// another holder. An address that moves has one holder at a time.
func provenTogether(list []*binding, overlap time.Duration) []*binding {
	var proven []*binding
	for _, b := range list {
		if b.check.proven || slices.ContainsFunc(list, func(o *binding) bool {
			return o != b && conflicting([]*binding{b, o}) && together(b.check, o.check, overlap)
		}) {
			proven = append(proven, b)
		}
	}
	return proven
}

// pair notes since when two holders have answered in the same rounds, when one of them has answered: their answers are at most
// pairTime apart. Otherwise an address that moves to and fro between them would count.
func (b *binding) pair() {
	c := b.check
	for _, other := range b.entry.bindings {
		o := other.check
		if other == b || o == nil || o.latest.IsZero() || c.latest.Sub(o.latest).Abs() > pairTime || !c.since[o].IsZero() {
			continue
		}
		at := schedule.Later(c.latest, o.latest)
		for _, side := range [...][2]*check{{c, o}, {o, c}} {
			if side[0].since == nil {
				side[0].since = make(map[*check]time.Time)
			}
			side[0].since[side[1]] = at
		}
	}
}

// unpair forgets what the answers of a holder have proved.
func (c *check) unpair() {
	for o := range c.since {
		delete(o.since, c)
	}
	c.since, c.answers, c.latest, c.asked = nil, 0, time.Time{}, time.Time{}
}

// together reports whether two holders answered the same two rounds, both for at least overlap.
func together(x, y *check, overlap time.Duration) bool { return x.togetherWith(y) >= overlap }

// togetherWith returns for how long two holders are known to have the address together; negative if they are not.
func (c *check) togetherWith(o *check) time.Duration {
	since := c.since[o]
	if since.IsZero() || c.latest.Sub(o.latest).Abs() > pairTime {
		return -1
	}
	return schedule.Earlier(c.asked, o.asked).Sub(since)
}

// stragglerUntil returns until when a confirmation waits for a holder that has been probed once at most in this
// round; zero if it does not wait.
func (c *conflict) stragglerUntil(list []*binding, now time.Time) time.Time {
	until := c.round.Add(stragglerTime)
	for _, b := range list {
		k := b.check
		if k.phase == probing && k.attempts <= 1 && k.began.Equal(c.round) && until.After(now) {
			return until
		}
	}
	return time.Time{}
}
