package detector

import (
	"slices"
	"time"
)

// provenTogether returns the largest group of holders that answered in two rounds at
// least overlap apart. In each of the two all answered within answerTime: an address
// that goes to and fro between holders would otherwise pass for one that both have.
func provenTogether(list []*binding, overlap time.Duration) []*binding {
	var twice []*binding
	for _, b := range list {
		if p := b.probe; !p.first.IsZero() && p.latest.Sub(p.first) >= overlap {
			twice = append(twice, b)
		}
	}
	var best, group []*binding
	for _, x := range twice {
		begin := x.probe.first // the last of the first answers
		for _, y := range twice {
			end := y.probe.latest // the first of the latest
			if end.Sub(begin) < overlap {
				continue
			}
			group = group[:0]
			for _, b := range twice {
				if p := b.probe; within(p.first, begin.Add(-answerTime), begin) &&
					within(p.latest, end, end.Add(answerTime)) {
					group = append(group, b)
				}
			}
			if len(group) > len(best) && enough(group) {
				best = slices.Clone(group)
			}
		}
	}
	return best
}

func within(t, from, to time.Time) bool { return !t.Before(from) && !t.After(to) }

// straggler returns until when a confirmation waits for holders that are asked in the
// same round and have had one attempt only, so that three holders make one event;
// zero when there is none to wait for.
func (c *conflict) straggler(list []*binding, now time.Time) time.Time {
	until := c.round.Add(stragglerTime)
	for _, b := range list {
		p := b.probe
		if p.phase == asking && p.attempts == 1 && p.began.Equal(c.round) && until.After(now) {
			return until
		}
	}
	return time.Time{}
}

// plan begins the second round of a suspicion, or says when to.
func (d *Detector) plan(c *conflict, list []*binding, now time.Time, fx *Effects) {
	var answered []*binding
	for _, b := range list {
		p := b.probe
		switch {
		case p.phase == asking && !p.late(c) && now.Before(p.since.Add(unsentTime)):
			c.wake = earlier(c.wake, p.since.Add(unsentTime))
		case p.phase == resting && !p.first.IsZero():
			answered = append(answered, b)
		}
	}
	if !c.wake.IsZero() {
		return // the first round is not over
	}
	slices.SortStableFunc(answered, func(a, b *binding) int {
		return a.probe.first.Compare(b.probe.first)
	})
	n := 2
	for n < len(answered) && !enough(answered[:n]) {
		n++
	}
	if n > len(answered) || !enough(answered[:n]) {
		d.keep(c, answered, now, fx)
		return
	}
	// Those that began together go on together; later ones hold nobody up.
	joined := slices.MaxFunc(answered[:n], func(a, b *binding) int {
		return a.probe.joined.Compare(b.probe.joined)
	}).probe.joined
	group := slices.DeleteFunc(answered, func(b *binding) bool { return b.probe.joined.After(joined) })
	begin, last := group[0].probe.first, group[len(group)-1].probe.first
	if last.Sub(begin) > answerTime {
		// One was held up. What the others answered was too long ago to go with it.
		for _, b := range group {
			b.probe.first, b.probe.latest = time.Time{}, time.Time{}
			d.startRound(b, now, fx)
		}
		c.wake = now.Add(unsentTime)
		return
	}
	at := last.Add(d.opts.MinOverlap)
	if at.After(now) {
		c.wake = at
		return
	}
	c.round = now
	for _, b := range group {
		d.startRound(b, now, fx)
	}
}

// keep asks holders now and then that have answered but wait for one that cannot be
// solicited: a suspicion lasts only as long as they live.
func (d *Detector) keep(c *conflict, answered []*binding, now time.Time, fx *Effects) {
	for _, b := range answered {
		at := b.probe.latest.Add(keepTime)
		if at.After(now) {
			c.wake = earlier(c.wake, at)
			continue
		}
		d.startRound(b, now, fx)
	}
}

// settleConfirmed follows a confirmed conflict: newcomers, losses, re-checks and
// the end.
func (d *Detector) settleConfirmed(e *entry, now time.Time, fx *Effects) bool {
	c := e.conflict
	c.wake = time.Time{}
	list := e.counting()
	for _, b := range list {
		if b.probe == nil {
			d.rouse(list, now, fx)
			d.join(b, now, fx)
		}
	}
	d.proveNewcomers(c, list, now, fx)
	var live []*binding
	verifying := false
	for _, b := range list {
		switch p := b.probe; {
		case p.proven:
			live = append(live, b)
		case p.phase == asking, p.phase == resting:
			verifying = true
		}
	}

	if enough(live) {
		c.below = time.Time{}
		d.republish(e, live, now, fx)
	} else {
		if c.below.IsZero() {
			c.below = now
		}
		end := c.below.Add(resolveTime)
		if verifying {
			// A second holder may be back: its two rounds are given their time, once.
			end = end.Add(d.opts.MinOverlap + 2*answerTime)
		}
		if !end.After(now) {
			d.resolve(e, now, fx)
			return true
		}
		c.wake = earlier(c.wake, end)
	}

	if !c.next.After(now) {
		c.next = now.Add(c.recheckPause(live, now))
		for _, b := range live {
			if b.probe.phase == resting {
				d.startRound(b, now, fx)
			}
		}
	}
	c.wake = earlier(c.wake, c.next)
	return false
}

// recheckPause returns how long to wait until the next re-check. A conflict that has
// been there for a while is asked about less often, because even the gentlest question
// costs the pods' network a few frames; but at once again when somebody is silent.
func (c *conflict) recheckPause(live []*binding, now time.Time) time.Duration {
	silent := slices.ContainsFunc(live, func(b *binding) bool { return !b.probe.silent.IsZero() })
	if silent || now.Sub(c.provenAt) < settledTime {
		return recheckTime
	}
	return slowRecheck
}

// republish makes the list of holders anew when it changed, and says so.
func (d *Detector) republish(e *entry, live []*binding, now time.Time, fx *Effects) {
	c := e.conflict
	if c.consistsOf(live) {
		return
	}
	reason, same := c.why, len(live) == len(c.parts)
	for _, b := range live {
		if !slices.ContainsFunc(c.parts, func(p part) bool { return p.id == b.holder.ID }) {
			reason, same = b.String()+" has it too", false
		}
	}
	c.setParts(live)
	if !same {
		d.event(e, EventChanged, now, reason, fx)
	}
}
