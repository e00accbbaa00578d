package detector

import (
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// AnswerTime is how long a holder may take to answer, from the first probe on, whichever node asks. One that takes longer is slow: it counts
// for no node.
const AnswerTime = time.Second

// attempts are when a holder is probed by its own node, counted from the first probe sent.
var attempts = [...]time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}

// MaxAttempts is how often a holder is probed in one round.
const MaxAttempts = len(attempts)

// AfterAttempt returns when the next probe of a round is due or, after MaxAttempts, when the round ends. made, at least 1, is how many were
// sent, the first and the last of them at these times. If one was late, so are the others: a holder is not silent before it was
// probed often enough.
func AfterAttempt(made int, first, last time.Time) time.Time {
	if made < MaxAttempts {
		return schedule.Later(first.Add(attempts[made]), last.Add(attempts[made]-attempts[made-1]))
	}
	return schedule.Later(first.Add(AnswerTime), last.Add(lastAttemptTime))
}

const (
	lastAttemptTime = 700 * time.Millisecond // at least, from the last probe to the end of a round
	unsentTime      = 5 * time.Second        // until a probe is repeated whose sending was not reported
	blockedTime     = 30 * time.Second       // until a blocked holder is probed again
	minRetry        = 10 * time.Millisecond  // at least, until a holder is probed that a guard protected
	retryPause      = time.Second            // the same for a remote holder, or after a sighting
	// awaitRequestTime is how long the probe of a local holder waits if a remote one has the address, too. By
	// then that holder's node has usually requested a probe, and one probe serves both nodes.
	awaitRequestTime = 20 * time.Millisecond
)

// phase is the state of a check. The package comment has the diagram.
type phase uint8

const (
	resting phase = iota // between rounds
	probing              // a round is under way
	waiting              // a guard postponed the round
	blocked              // a guard forbids the round
)

// check has the results of a conflict's rounds for one holder.
type check struct {
	phase    phase
	round             // the present round
	deferral deferral // while waiting or blocked

	// latest is when the holder answered last, answers is in how many rounds, and since has from when on it has answered together with
	// others. All are zero until it answers, and after a round without an answer. A remote holder may have answered earlier, by what its
	// node's reply took; surely it did not before asked.
	latest     time.Time
	asked      time.Time
	answers    int
	since      map[*check]time.Time
	proven     bool      // the holder is one of a confirmed conflict
	configured bool      // the latest answer is what its kernel has configured: it was not asked itself
	silent     time.Time // when the first of its unanswered rounds began; zero if it answered the last
	noReply    int       // probe requests in a row without a reply of a remote holder's node
}

// round is one probe of a holder and its repetitions.
type round struct {
	id        uint32
	began     time.Time // only later answers count
	attempted time.Time // last attempt
	attempts  int
	sent      time.Time // first report that an attempt was sent; zero until then
	forwards  bool      // the holder answered, but does not have the address
}

// deferral is the reason why a holder is not probed now, and for how long.
type deferral struct {
	reason       string
	since, until time.Time
}

// roundName returns the name of the present round for a note.
func (c *check) roundName() string {
	switch {
	case c.proven:
		return ""
	case c.answers == 0:
		return " in round 1"
	case c.answers == 1:
		return " in round 2"
	default:
		return " again"
	}
}

// due returns when advanceCheck has something to do; zero for never.
func (c *check) due() time.Time {
	switch c.phase {
	case probing:
		switch {
		case c.attempts == 0:
			return c.began.Add(awaitRequestTime)
		case c.sent.IsZero():
			return c.attempted.Add(unsentTime)
		default:
			return AfterAttempt(c.attempts, c.sent, c.attempted)
		}
	case waiting, blocked:
		return c.deferral.until
	default:
		return time.Time{}
	}
}

// advanceCheck does what is due for one holder.
func (d *Detector) advanceCheck(b *binding, now time.Time, fx *Effects) {
	c := b.check
	if c == nil {
		return
	}
	due := c.due()
	switch {
	case due.IsZero() || due.After(now):
	case c.phase != probing || c.attempts > 0 && c.sent.IsZero():
		d.startRound(b, now, fx)
	case c.attempts < MaxAttempts:
		d.sendProbe(b, now, fx)
	default:
		d.unanswered(b, now)
	}
}

// startRound probes a holder. Only answers from now on count.
func (d *Detector) startRound(b *binding, now time.Time, fx *Effects) {
	d.round = max(d.round+1, 1) // 0 means any round in a report
	b.check.phase, b.check.round = probing, round{id: d.round, began: now}
	if b.remote || b.entry.remotes("") == 0 {
		d.sendProbe(b, now, fx)
	}
}

func (d *Detector) sendProbe(b *binding, now time.Time, fx *Effects) {
	c := b.check
	c.attempts++
	c.attempted = now
	if b.remote {
		b.entry.record(now, b.holder.ID, noteNodeProbed, c.roundName())
	}
	fx.Probes = append(fx.Probes, Probe{
		Key: b.entry.key, Holder: b.holder.ID, Interface: b.latestSource().iface,
		Purpose: Verify, Round: c.id,
	})
}

// checkSighting updates a check by a sighting of its holder. It reports whether that changed anything.
func (d *Detector) checkSighting(b *binding, s *Sighting, now time.Time, fx *Effects) bool {
	c := b.check
	switch c.phase {
	case probing:
		switch {
		case !s.Answer || s.At.Before(c.began):
			return false
		case s.Evidence != Forwarded:
			d.answered(b, s, now)
		case b.evidence == Data:
			c.forwards = true
			d.unanswered(b, now) // no other answer is expected
		default:
			c.forwards = true
			return false
		}
		return true
	case waiting, blocked:
		// The holder is still there: the guard may allow a probe now, or its node may reply.
		if !s.At.After(c.deferral.since) {
			return false
		}
		c.deferral.until = schedule.Earlier(c.deferral.until, schedule.Later(now, c.deferral.since.Add(retryPause)))
		if !c.deferral.until.After(now) {
			d.startRound(b, now, fx)
		}
		return true
	}
	return false
}

func (d *Detector) answered(b *binding, s *Sighting, now time.Time) {
	c, at := b.check, s.At
	sent := c.sent
	if sent.IsZero() || sent.After(at) {
		sent = c.began
	}
	t := noteAnswer
	if c.configured = s.Evidence == Configured; c.configured {
		t = noteListed
	} else if c.proven {
		t = noteAnswerAgain
	}
	b.entry.record(now, b.holder.ID, t, c.roundName()).took = at.Sub(sent)

	c.phase, c.silent, c.noReply = resting, time.Time{}, 0
	if b.remote && s.Life != 0 {
		if b.life != 0 && b.life != s.Life {
			c.unpair() // it did not have the address all the time
		}
		b.life = s.Life
	}
	c.latest, c.asked = at, at
	if b.remote {
		c.asked = c.began
	}
	c.answers++
	b.pair()
	b.entry.resetPenalty(b.holder.ID)
}

// unanswered ends a round without an answer. A proven or awaited holder is probed again in a later round.
// Any other holder gets a penalty: if it sends data only, its evidence becomes Forwarded, otherwise its
// binding ends.
func (d *Detector) unanswered(b *binding, now time.Time) {
	c, e, id := b.check, b.entry, b.holder.ID
	roundName := c.roundName()
	c.phase, c.noReply = resting, 0
	c.unpair()
	if c.silent.IsZero() {
		c.silent = c.began
	}
	if c.proven {
		e.record(now, id, noteMissed, "")
		if c.began.Sub(c.silent) < recheckTime {
			return // it may pause, or packets may be lost
		}
	} else if d.isAwaited(e, id, now) {
		e.record(now, id, noteAwaited, roundName)
		return
	}
	suppressed := d.penalize(b, now)
	if !b.remote && (c.forwards || b.evidence == Data) {
		t := noteDataOnly
		if c.forwards {
			t = noteForwards
		}
		e.record(now, id, t, suppressed.String())
		d.forwardsOnly(b, b.because(t, ""), now)
		return
	}
	t := noteNoAnswer
	switch {
	case c.forwards:
		t = noteForwardsThere
	case b.evidence == Configured:
		t = noteUnlisted
	}
	d.remove(b, t, roundName, now)
}

// isAwaited reports whether a restored conflict waits for a holder long enough for another round.
func (d *Detector) isAwaited(e *entry, id HolderID, now time.Time) bool {
	c := e.conflict
	return c.state == Suspected && c.restoredHolder(id) != nil &&
		!now.Add(recheckTime+2*AnswerTime).After(d.awaitedUntil(c, e.bindings))
}

// ProbeSent reports that a probe of a local holder was sent. The deadline of a round runs from the
// first report.
func (d *Detector) ProbeSent(s Probe, now time.Time) {
	b := d.entries[s.Key].find(s.Holder)
	if b == nil {
		return
	}
	if s.Purpose == Refresh {
		b.entry.record(now, s.Holder, noteRefresh, "")
		return
	}
	if b.remote || d.inRound(s) == nil {
		return // its node probes a remote holder as often as needed
	}
	c := b.check
	t := noteProbed
	if c.proven {
		t = noteProbedAgain
	}
	b.entry.record(now, s.Holder, t, c.roundName())
	if c.sent.IsZero() {
		c.sent = now
		d.finish(b.entry, now)
	}
}

// ProbeRefused reports that a guard forbids to probe a holder until notBefore. If notBefore is zero, the
// holder is probed again when it is seen again, or after 30 s. Meanwhile it is neither verified nor lost.
// For a remote holder this is the reply of its node.
func (d *Detector) ProbeRefused(s Probe, reason string, notBefore, now time.Time) (fx Effects) {
	switch b := d.entries[s.Key].find(s.Holder); {
	case b == nil:
	case s.Purpose == Refresh:
		b.entry.record(now, s.Holder, noteNotProbed, reason)
		if !notBefore.IsZero() && b.refresh.count > 0 {
			b.refresh.count--
			b.refresh.after = schedule.Later(notBefore, now.Add(minRetry))
		}
		d.finish(b.entry, now)
	case d.inRound(s) != nil:
		b.check.noReply, b.stopped = 0, time.Time{}
		d.refused(b, reason, notBefore, now, &fx)
	}
	return fx
}

// refused postpones a round until notBefore. If notBefore is zero, it blocks the round.
func (d *Detector) refused(b *binding, reason string, notBefore, now time.Time, fx *Effects) {
	c := b.check
	t, soonest := noteNotProbed, now.Add(minRetry)
	if b.remote {
		t, soonest = noteNodeRefused, now.Add(retryPause)
	}
	b.entry.record(now, b.holder.ID, t, reason)
	c.phase, c.deferral = waiting, deferral{reason, now, schedule.Later(notBefore, soonest)}
	if notBefore.IsZero() {
		c.phase, c.deferral.until = blocked, now.Add(blockedTime)
	}
	d.update(b.entry, now, fx)
}
