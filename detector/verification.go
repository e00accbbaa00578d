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
	second := d.secondRound(c, list, now, fx)
	at := schedule.Earlier(c.round.Add(pause), second)
	if !at.After(now) {
		c.round, at = now, now.Add(pause)
		for _, b := range list {
			k := b.check
			current := !k.latest.Before(second) && now.Sub(k.latest) <= pairTime
			if k.phase == resting && !current {
				d.startRound(b, now, fx)
			}
		}
	}
	c.wake = schedule.Earlier(c.wake, at)
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

// secondRound returns when a second round can prove that the holders that answered have the address
// together; zero if no round can. If the first answer of a holder is too old to be paired with the last one, its
// latest answer takes its place. If that is too old as well, the holder is probed again.
func (d *Detector) secondRound(c *conflict, list []*binding, now time.Time, fx *Effects) time.Time {
	if c.state == Confirmed && !slices.ContainsFunc(list, (*binding).isNewcomer) {
		return time.Time{}
	}
	var answered []*binding
	for _, b := range list {
		// A newcomer in its second round can still be proven by the others' first answers: a later one must not change them.
		inSecond := c.state == Confirmed && b.isNewcomer() && b.check.phase == probing
		if (b.check.phase == resting || inSecond) && !b.check.first.IsZero() {
			answered = append(answered, b)
		}
	}
	slices.SortStableFunc(answered, func(a, b *binding) int { return a.check.first.Compare(b.check.first) })
	// The smallest set of holders that can prove something, and the holders that answered with them.
	// Later answers do not delay the round.
	n := 2
	for n <= len(answered) && !c.provable(answered[:n]) {
		n++
	}
	if n > len(answered) {
		return time.Time{}
	}
	last := answered[n-1].check.first
	for n < len(answered) && !answered[n].check.first.After(last.Add(stragglerTime)) {
		n++
	}
	var begin time.Time
	restarted := false
	for _, b := range answered[:n] {
		k := b.check
		if last.Sub(k.first) > pairTime {
			k.first = k.latest
		}
		if last.Sub(k.first) > pairTime && k.phase == resting {
			restarted = true
			k.first, k.latest = time.Time{}, time.Time{}
			d.startRound(b, now, fx)
		}
		begin = schedule.Later(begin, k.first)
	}
	if restarted {
		return time.Time{}
	}
	return begin.Add(d.opts.MinOverlap)
}

// provable reports whether a second round of these holders can confirm the conflict or a newcomer.
func (c *conflict) provable(list []*binding) bool {
	if c.state == Suspected {
		return enough(list)
	}
	return conflicting(list) && slices.ContainsFunc(list, (*binding).isNewcomer)
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

// together reports whether two holders answered the same two rounds, both for at least overlap. In
// each round both answered within pairTime.
func together(x, y *check, overlap time.Duration) bool {
	return !x.first.IsZero() && !y.first.IsZero() &&
		x.first.Sub(y.first).Abs() <= pairTime && x.latest.Sub(y.latest).Abs() <= pairTime &&
		schedule.Earlier(x.latest, y.latest).Sub(schedule.Later(x.first, y.first)) >= overlap
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
