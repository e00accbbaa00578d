package detector

import (
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

const (
	// stragglerTime is how long a confirmation waits for holders of the same round, so that three
	// holders make one event.
	stragglerTime = 100 * time.Millisecond

	blockedTime = 30 * time.Second      // until a blocked holder is probed again
	minRetry    = 10 * time.Millisecond // at least, until a holder is probed that a guard protected
	retryPause  = time.Second           // the same for a remote holder, or after a sighting
	// unreachableTime is the first pause before another probe request to a node that did not reply.
	// It doubles up to recheckTime.
	unreachableTime = 2 * time.Second
)

// verifier asks the holders of an address whether they have it: in rounds, all of them at about the same time. It must not know
// when a conflict begins or ends, nor what becomes of a holder that does not answer: of a conflict it reads only whose answers are awaited.
type verifier struct {
	overlap, nodeOverlap time.Duration // see Options
	round                uint32        // the number of the last round that began
	probes               []Probe       // to be sent
	queues               bool          // rounds wait until they are admitted
}

// overlapOf returns for how long these holders must have the address together.
func (v *verifier) overlapOf(holders ...*binding) time.Duration {
	if areNodes(holders) {
		return v.nodeOverlap
	}
	return v.overlap
}

// loss is a binding that is lost because its holder did not answer, and why.
type loss struct {
	*template
	arg string
	// forwards: the holder only forwards, by all that is known, or is silent. The binding remains.
	forwards bool
	// unheard: it has the address by what its node says. It is asked again after a while.
	unheard bool
}

// begin has a holder probed, when that is admitted.
func (v *verifier) begin(b *binding, now time.Time) {
	if !v.queues {
		v.start(b, now)
	} else if b.check.phase != queued {
		b.check.phase = queued
	}
}

// start probes a holder. Only answers from now on count.
func (v *verifier) start(b *binding, now time.Time) {
	v.overhear(b, now)
	v.round = max(v.round+1, 1) // 0 means any round in a report
	b.check.phase, b.check.round = probing, round{id: v.round, began: now, await: now.Add(awaitRequestTime)}
	if b.entry.needsOthers() {
		b.check.await = now.Add(awaitTime)
	}
	if b.remote || b.entry.remotes("") == 0 {
		v.probe(b, now)
	}
}

func (v *verifier) probe(b *binding, now time.Time) {
	c := b.check
	c.attempts++
	c.attempted = now
	if b.remote {
		b.entry.record(now, b.holder.ID, noteNodeProbed, c.roundName())
	}
	v.probes = append(v.probes, v.probeOf(b))
}

func (v *verifier) probeOf(b *binding) Probe {
	p := Probe{Key: b.entry.key, Holder: b.holder.ID, Interface: b.latestSource().iface, Purpose: Verify, Round: b.check.id}
	if b.mustBeHeard() {
		p.Hear = b.holder.MAC.Hearable()
	}
	return p
}

// sent notes that a probe of a local holder was sent, and reports whether that moves the deadline of the round.
func (v *verifier) sent(b *binding, now time.Time) bool {
	c := b.check
	t := noteProbed
	if c.proven {
		t = noteProbedAgain
	}
	b.entry.record(now, b.holder.ID, t, c.roundName())
	if !c.sent.IsZero() {
		return false
	}
	c.hurry(now)
	c.sent = now
	return true
}

// advance does what is due for one holder. The binding may be lost.
func (v *verifier) advance(b *binding, now time.Time) *loss {
	c := b.check
	if c == nil {
		return nil
	}
	due := c.due()
	switch {
	case due.IsZero() || due.After(now):
	case c.phase != probing:
		v.begin(b, now)
	case c.attempts > 0 && c.sent.IsZero():
		v.start(b, now)
	case c.attempts < MaxAttempts:
		v.probe(b, now)
	default:
		return v.unanswered(b, now)
	}
	return nil
}

// sighted updates the check of a binding by a sighting of its holder. It reports whether that changed anything. The binding may be lost.
func (v *verifier) sighted(b *binding, s *Sighting, now time.Time) (changed bool, lost *loss) {
	c := b.check
	c.heard = c.heard || s.Answer && !s.Overheard // in time: a pod could answer old probes only, to seem slow
	switch {
	case c.phase == probing:
		switch {
		case !s.Answer || s.At.Before(c.began):
		case s.Evidence != Forwarded:
			v.answered(b, s, now)
			return true, nil
		case b.evidence == Data:
			c.forwards = true
			return true, v.unanswered(b, now) // no other answer is expected
		default:
			c.forwards = true
		}
	// The holder is still there: the guard may allow a probe now, or its node may reply.
	case (c.phase == waiting || c.phase == blocked) && s.At.After(c.deferral.since):
		c.deferral.until = schedule.Earlier(c.deferral.until, schedule.Later(now, c.deferral.since.Add(retryPause)))
		if !c.deferral.until.After(now) {
			v.begin(b, now)
		}
		return true, nil
	}
	return false, nil
}

func (v *verifier) answered(b *binding, s *Sighting, now time.Time) {
	c := b.check
	sent := c.sent
	if sent.IsZero() || sent.After(s.At) {
		sent = c.began
	}
	t := noteAnswer
	if c.configured = s.Evidence == Configured; c.configured {
		t = noteListed
	} else if c.proven {
		t = noteAnswerAgain
	}
	b.entry.record(now, b.holder.ID, t, c.roundName()).took = s.At.Sub(sent)
	if b.remote && s.Life != 0 {
		if b.life != 0 && b.life != s.Life {
			c.unpair() // it did not have the address all the time
		}
		b.life = s.Life
	}
	c.answered(s.At, b.remote)
	if b.remote {
		b.entry.replied(now)
	}
	b.pair()
	b.entry.penalties.reset(b.holder.ID)
}

// needsOthers reports whether nothing can be proved before another node replies: this one has one holder.
func (e *entry) needsOthers() bool {
	locals := 0
	for _, b := range e.bindings {
		if !b.remote && b.counts() {
			locals++
		}
	}
	return locals == 1
}

// replied has the probes of local holders wait no longer than for a request that comes along with the reply of another node.
func (e *entry) replied(now time.Time) {
	for _, b := range e.bindings {
		if c := b.check; c != nil && !b.remote && c.phase == probing {
			c.hurry(now)
		}
	}
}

// pair pairs the last answer of a holder with those of all others.
func (b *binding) pair() {
	for _, other := range b.entry.bindings {
		if other != b && other.check != nil {
			b.check.pair(other.check)
		}
	}
}

// unanswered ends a round without an answer. A proven or awaited holder is probed again in a later round.
// Any other holder gets a penalty: if it sends data only, its evidence becomes Forwarded, otherwise its
// binding ends.
func (v *verifier) unanswered(b *binding, now time.Time) *loss {
	c, e, id := b.check, b.entry, b.holder.ID
	if b.remote {
		e.replied(now)
	}
	roundName, deaf := c.roundName(), v.overhear(b, now) || b.isDeaf()
	c.phase, c.noReply = resting, 0
	if deaf && c.together() {
		return nil // until it is not seen any more, or its kernel loses the address
	}
	c.unpair()
	if c.silent.IsZero() {
		c.silent = c.began
	}
	if c.proven {
		e.record(now, id, noteMissed, "")
		if c.began.Sub(c.silent) < recheckTime {
			return nil // it may pause, or packets may be lost
		}
	} else if e.conflict.awaits(id, e.bindings, now) {
		e.record(now, id, noteAwaited, roundName)
		return nil
	}
	if b.mustBeHeard() {
		e.record(now, id, noteUnheard, e.penalties.addUnheard(id, now).String())
		return &loss{template: noteUnheard, unheard: true}
	}
	suppressed := e.penalties.add(id, b.remote || b.evidence != Data, now).String()
	switch {
	case !b.remote && c.forwards:
		e.record(now, id, noteForwards, suppressed)
		return &loss{template: noteForwards, forwards: true}
	case !b.remote && b.listed:
		e.record(now, id, noteSilent, suppressed)
		return &loss{template: noteSilent, forwards: true}
	case !b.remote && b.evidence == Data:
		e.record(now, id, noteDataOnly, suppressed)
		return &loss{template: noteDataOnly, forwards: true}
	case c.forwards:
		return &loss{template: noteForwardsThere, arg: roundName}
	case b.evidence == Configured:
		return &loss{template: noteUnlisted, arg: roundName}
	default:
		return &loss{template: noteNoAnswer, arg: roundName}
	}
}

// refused postpones a round until notBefore. If notBefore is zero, it blocks the round.
func (v *verifier) refused(b *binding, reason string, notBefore, now time.Time) {
	c := b.check
	t, soonest := noteNotProbed, now.Add(minRetry)
	if b.remote {
		t, soonest = noteNodeRefused, now.Add(retryPause)
		b.entry.replied(now)
	}
	b.entry.record(now, b.holder.ID, t, reason)
	c.phase, c.deferral = waiting, deferral{reason, now, schedule.Later(notBefore, soonest)}
	if notBefore.IsZero() {
		c.phase, c.deferral.until = blocked, now.Add(blockedTime)
	}
}

// unreachable postpones a round because the holder's node did not reply, each time for longer.
func (v *verifier) unreachable(b *binding, now time.Time) {
	pause := min(unreachableTime<<min(b.check.noReply, 8), recheckTime)
	b.check.noReply++
	reason := "node " + b.node() + " does not answer"
	if !b.stopped.IsZero() {
		reason = "the agent of node " + b.node() + " was stopped"
	}
	v.refused(b, reason, now.Add(pause), now)
}

// rounds probes all holders when it is time, to prove that they have the address together, or to check that they still answer. confirmed
// is whether they are known to have it together, last when the last round began, and pause the time from one round to the next. An answer
// that others can still be paired with is not repeated. It returns when the last round began now, and when something is due next.
func (v *verifier) rounds(list []*binding, confirmed bool, last time.Time, pause time.Duration, now time.Time) (began, next time.Time) {
	second, next := v.second(list, confirmed, now)
	at := last.Add(pause)
	if !at.After(now) || !second.IsZero() {
		last, at = now, now.Add(pause)
		for _, b := range list {
			switch {
			case b.check.phase != resting || b.check.isCurrent(second, now):
			case second.IsZero():
				v.begin(b, now)
			default: // it is admitted with the first one
				v.start(b, now)
			}
		}
	}
	return last, schedule.Earlier(at, next)
}

// second returns since when a second round is due that can prove that two holders have the address together, zero if none is, and
// when the next one will be. If the last answers of two holders are too far apart to be paired, the one that answered first is probed again.
func (v *verifier) second(list []*binding, confirmed bool, now time.Time) (due, next time.Time) {
	for i, x := range list {
		for _, y := range list[:i] {
			if !isOpen(x, y, confirmed) || x.check.latest.IsZero() || y.check.latest.IsZero() {
				continue
			}
			first, second := x, y
			if second.check.latest.Before(first.check.latest) {
				first, second = second, first
			}
			since := x.check.since[y.check]
			switch at := since.Add(v.overlapOf(x, y)); {
			case !since.IsZero() && at.After(now):
				next = schedule.Earlier(next, at)
			case !since.IsZero() && (x.check.phase == resting && !x.check.isCurrent(at, now) || y.check.phase == resting && !y.check.isCurrent(at, now)):
				due = schedule.Earlier(due, at)
			case since.IsZero() && first.check.phase == resting && second.check.latest.Sub(first.check.latest) > pairTime:
				v.begin(first, now)
			}
		}
	}
	if !due.IsZero() && !next.IsZero() && !next.After(due.Add(stragglerTime)) {
		return time.Time{}, next // one round serves both
	}
	return due, next
}

// isOpen reports whether it is open whether two holders have the address together, and worth to know.
func isOpen(x, y *binding, confirmed bool) bool {
	if !confirmed {
		return enough([]*binding{x, y})
	}
	return conflicting([]*binding{x, y}) && (x.isNewcomer() || y.isNewcomer())
}

// proven returns the holders that were proven before, or that answered the same two rounds as another holder, which are far enough apart.
// An address that moves has one holder at a time.
func (v *verifier) proven(list []*binding) []*binding {
	var proven []*binding
	for _, b := range list {
		if b.check.proven || slices.ContainsFunc(list, func(o *binding) bool {
			return o != b && conflicting([]*binding{b, o}) && b.check.togetherWith(o.check) >= v.overlapOf(b, o)
		}) {
			proven = append(proven, b)
		}
	}
	return proven
}

// stragglerUntil returns until when a confirmation waits for a holder that has been probed once at most in a
// round; zero if it does not wait.
func stragglerUntil(list []*binding, round, now time.Time) time.Time {
	until := round.Add(stragglerTime)
	for _, b := range list {
		k := b.check
		if k.phase == probing && k.attempts <= 1 && k.began.Equal(round) && until.After(now) {
			return until
		}
	}
	return time.Time{}
}

// refresh probes a silent binding that is due.
func (v *verifier) refresh(b *binding, now time.Time) {
	due := b.refreshDue()
	if b.entry.conflict != nil || due.IsZero() || due.After(now) {
		return
	}
	b.refresh.count++
	b.refresh.after = now.Add(bindingTTL / 8) // after a suspicion, both probes may be overdue
	v.probes = append(v.probes, Probe{
		Key: b.entry.key, Holder: b.holder.ID, Interface: b.latestSource().iface, Purpose: Refresh,
	})
}

// refreshed takes the result of a probe that keeps a silent binding.
func (v *verifier) refreshed(b *binding, r Result, now time.Time) {
	if r.Outcome == Sent {
		b.entry.record(now, b.holder.ID, noteRefresh, "")
		return
	}
	b.entry.record(now, b.holder.ID, noteNotProbed, r.Reason)
	if !r.Until.IsZero() && b.refresh.count > 0 {
		b.refresh.count--
		b.refresh.after = schedule.Later(r.Until, now.Add(minRetry))
	}
}
