package detector

import (
	"time"
)

const (
	answerTime  = time.Second            // a round is over this long after it was sent
	lastChance  = 700 * time.Millisecond // and at least this long after the last attempt
	unsentTime  = 5 * time.Second        // without a report that it was sent, ask again
	blockedTime = 30 * time.Second       // until a holder that cannot be solicited is tried again
	keepTime    = 30 * time.Second       // until one that waits for such a holder is asked again
	recheckTime = 5 * time.Second        // between two re-checks of a confirmed conflict
	settledTime = time.Minute            // after which it is re-checked less often
	slowRecheck = 30 * time.Second       // namely this, while everybody answers
	minRetry    = 10 * time.Millisecond  // never sooner after a refusal
)

// attempts are when a holder is solicited in a round, counted from the first one sent.
var attempts = [...]time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}

// phase is where a probe stands.
type phase uint8

const (
	resting phase = iota // between rounds
	asking               // a round is under way
	waiting              // a safeguard postponed the round
	blocked              // a safeguard forbids it
)

// probe is the verification of one holder during one suspicion or conflict.
type probe struct {
	phase  phase
	joined time.Time // when the holder joined the suspicion or conflict

	round     uint32    // names the present round
	began     time.Time // answers count from here
	since     time.Time // as began, but not moved when the round is asked again
	asked     time.Time // last attempt
	attempts  int
	solicited time.Time // first report that an attempt was sent; zero until then
	forwards  bool      // it answered, but for an address it does not have

	reason  string    // waiting, blocked: why
	refused time.Time // waiting, blocked: since when
	retry   time.Time // waiting, blocked: until when

	// The holder had the address at first and at latest, in two rounds; both zero
	// until it answered.
	first, latest time.Time
	proven        bool      // counted among the holders of a confirmed conflict
	silent        time.Time // when the first of the rounds that it left unanswered began
	unreached     int       // questions in a row that a remote holder's node did not answer

	newcomer // while it is not proven in a confirmed conflict
}

// late reports whether the holder came after the suspicion and has yet to answer;
// nobody waits for it.
func (p *probe) late(c *conflict) bool {
	return p.first.IsZero() && p.joined.After(c.suspectedAt)
}

// turn names the present round for a note. All after the second are one.
func (p *probe) turn() string {
	switch {
	case p.proven:
		return ""
	case p.first.IsZero():
		return " in round 1"
	case p.latest.Equal(p.first):
		return " in round 2"
	default:
		return " again"
	}
}

// due returns when stepProbe has something to do; zero for never.
func (p *probe) due() time.Time {
	switch p.phase {
	case asking:
		switch {
		case p.solicited.IsZero():
			return p.asked.Add(unsentTime)
		case p.attempts < len(attempts):
			return p.solicited.Add(attempts[p.attempts])
		default:
			return later(p.solicited.Add(answerTime), p.asked.Add(lastChance))
		}
	case waiting, blocked:
		return p.retry
	default:
		return time.Time{}
	}
}

// startRound asks a holder once more. Only answers from now on count.
func (d *Detector) startRound(b *binding, now time.Time, fx *Effects) {
	b.probe.since = now
	d.askAgain(b, now, fx)
}

func (d *Detector) askAgain(b *binding, now time.Time, fx *Effects) {
	p := b.probe
	d.round = max(d.round+1, 1) // 0 has a meaning of its own
	p.phase, p.round, p.began = asking, d.round, now
	p.attempts, p.solicited, p.forwards = 0, time.Time{}, false
	d.solicit(b, now, fx)
}

func (d *Detector) solicit(b *binding, now time.Time, fx *Effects) {
	p := b.probe
	p.attempts++
	p.asked = now
	if b.remote {
		b.entry.tell(now, b.holder.ID, tellAsked, p.turn())
	}
	fx.Solicit = append(fx.Solicit, Solicitation{
		Key: b.entry.key, Holder: b.holder.ID, Interface: b.freshest().iface,
		Purpose: Verify, Round: p.round,
	})
}

// stepProbe does what is due for one holder.
func (d *Detector) stepProbe(b *binding, now time.Time, fx *Effects) {
	p := b.probe
	if p == nil {
		return
	}
	due := p.due()
	switch {
	case due.IsZero() || due.After(now):
	case p.phase != asking:
		d.startRound(b, now, fx)
	case p.solicited.IsZero():
		d.askAgain(b, now, fx)
	case p.attempts < len(attempts):
		d.solicit(b, now, fx)
	default:
		d.unanswered(b, now)
	}
}

// hear lets a probe have a sighting of its holder. It reports whether that changed
// anything.
func (d *Detector) hear(b *binding, s *Sighting, novel bool, now time.Time, fx *Effects) bool {
	p := b.probe
	switch p.phase {
	case asking:
		switch {
		case !s.Answer || s.At.Before(p.began):
			return false
		case s.Evidence != Forwarded:
			d.answered(b, s.At, now)
		case b.evidence == Data:
			p.forwards = true
			d.unanswered(b, now) // this was its answer: no need to wait for more
		default:
			p.forwards = true
			return false
		}
		return true
	case waiting, blocked:
		if b.remote {
			return d.learn(b, s, now, fx)
		}
		// Something new: the safeguard may have changed its mind.
		gap := 100 * time.Millisecond
		if p.phase == blocked {
			gap = time.Second
		}
		if (novel || s.Evidence >= Announced) && now.Sub(p.refused) >= gap {
			d.startRound(b, now, fx)
			return true
		}
	}
	return false
}

func (d *Detector) answered(b *binding, at, now time.Time) {
	p := b.probe
	sent := p.solicited
	if sent.IsZero() || sent.After(at) {
		sent = p.asked
	}
	if sent.After(at) {
		sent = p.began
	}
	t := tellAnswered
	if p.proven {
		t = tellRechecked
	}
	b.entry.tell(now, b.holder.ID, t, p.turn()).took = at.Sub(sent)

	p.phase, p.silent, p.unreached = resting, time.Time{}, 0
	p.latest = at
	if p.first.IsZero() {
		p.first = at
	}
}

// unanswered ends a round without an answer. The holder of a confirmed conflict is
// given a second chance; another is no holder: data alone is taken for forwarding,
// and a binding that was announced has ended.
func (d *Detector) unanswered(b *binding, now time.Time) {
	p, e, id := b.probe, b.entry, b.holder.ID
	p.phase, p.unreached = resting, 0
	if at := e.patience(id, now); !p.forwards && !at.IsZero() {
		e.tell(now, id, tellSilent, p.turn())
		p.phase, p.reason, p.refused, p.retry = waiting, "", now, at
		return
	}
	if p.proven {
		e.tell(now, id, tellMissed, "")
		if p.silent.IsZero() {
			p.silent = p.began
		}
		if p.began.Sub(p.silent) < recheckTime {
			return // it may be paused, or packets were lost
		}
	}
	suppressed := d.penalize(b, now)
	if !b.remote && (p.forwards || b.evidence == Data) {
		t := tellDemoted
		if p.forwards {
			t = tellForwards
		}
		e.tell(now, id, t, suppressed.String())
		d.demote(b, b.String()+" "+t.clause(""), now)
		return
	}
	t := tellUnanswered
	if p.forwards {
		t = tellForwardsThere
	}
	d.remove(b, t, p.turn(), now)
}

// Solicited reports that a solicitation of a local holder was sent. Until the first such
// report of a round its deadline does not run.
func (d *Detector) Solicited(s Solicitation, now time.Time) {
	b := d.binding(s.Key, s.Holder)
	if b == nil {
		return
	}
	if s.Purpose == Refresh {
		b.entry.tell(now, s.Holder, tellRefresh, "")
		return
	}
	if b.remote || d.questioned(s) == nil {
		return // the attempts at a remote holder are its node's affair
	}
	p := b.probe
	t := tellSolicited
	if p.proven {
		t = tellRecheck
	}
	b.entry.tell(now, s.Holder, t, p.turn())
	if p.solicited.IsZero() {
		p.solicited = now
		d.finish(b.entry, now)
	}
}

// NotSolicited reports that a safeguard refused a solicitation, for the reason given:
// until notBefore, or when that is zero for as long as nothing new is seen. The holder
// is then neither verified nor taken for gone. Of a remote holder it reports what its
// node said.
func (d *Detector) NotSolicited(s Solicitation, reason string, notBefore, now time.Time) Effects {
	var fx Effects
	b := d.binding(s.Key, s.Holder)
	if b == nil {
		return fx
	}
	if s.Purpose == Refresh {
		b.entry.tell(now, s.Holder, tellNotSolicited, reason)
		if !notBefore.IsZero() && b.refreshes > 0 {
			b.refreshes--
			b.refreshAfter = later(notBefore, now.Add(minRetry))
		}
		d.finish(b.entry, now)
		return fx
	}
	if d.questioned(s) == nil {
		return fx
	}
	b.probe.unreached = 0
	d.refused(b, reason, notBefore, now, &fx)
	return fx
}

// refused puts the question off until notBefore or, when that is zero, blocks it.
func (d *Detector) refused(b *binding, reason string, notBefore, now time.Time, fx *Effects) {
	p := b.probe
	t := tellNotSolicited
	if b.remote {
		t = tellNotAsked
	}
	b.entry.tell(now, b.holder.ID, t, reason)
	p.reason, p.refused = reason, now
	if notBefore.IsZero() {
		p.phase, p.retry = blocked, now.Add(blockedTime)
	} else {
		soonest := minRetry
		if b.remote {
			soonest = newsTime
		}
		p.phase, p.retry = waiting, later(notBefore, now.Add(soonest))
	}
	d.settle(b.entry, now, fx)
	d.finish(b.entry, now)
}

func (d *Detector) binding(key Key, id HolderID) *binding {
	if e := d.entries[key]; e != nil {
		return e.find(id)
	}
	return nil
}
