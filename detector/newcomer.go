package detector

import (
	"slices"
	"time"
)

// newcomer is what a probe remembers of a holder that joined a confirmed conflict.
type newcomer struct {
	witnesses []witness
	tries     int       // proofs that failed
	again     time.Time // when the next one is to begin, after two
}

// witness is another holder that answered when the newcomer first did.
type witness struct {
	id HolderID
	at time.Time
}

// proveNewcomers decides which newcomers of a confirmed conflict have the address at the
// same time as somebody else: another holder answered with them, in both rounds. An
// address that was handed over while its conflict ended would otherwise keep it open.
func (d *Detector) proveNewcomers(c *conflict, list []*binding, now time.Time, fx *Effects) {
	for _, b := range list {
		p := b.probe
		if p.proven || p.first.IsZero() {
			continue
		}
		d.collectWitnesses(b, list)
		if d.attested(b, list) {
			p.proven, p.newcomer = true, newcomer{}
			continue
		}
		if p.phase != resting {
			continue
		}
		if len(p.witnesses) > 0 && !waitsFor(b, list) {
			d.beginProof(b, now, fx) // with those who are there now
			continue
		}
		begin := p.first
		for _, w := range p.witnesses {
			begin = later(begin, w.at)
		}
		second := begin.Add(d.opts.MinOverlap)
		switch answered := !p.latest.Before(second); {
		case !answered && len(p.witnesses) > 0 && !second.After(now):
			d.startRound(b, now, fx)
		case !answered && len(p.witnesses) > 0:
			d.call(b, p.first.Add(-answerTime/2), list, now, fx)
			c.wake = earlier(c.wake, second)
		default:
			// Others are given as long for their answer as in any round.
			x, since := p.first, p.first.Add(-answerTime/2)
			if answered {
				x, since = p.latest, later(p.latest.Add(-answerTime/2), second)
			}
			d.call(b, since, list, now, fx)
			if end := x.Add(answerTime); end.After(now) {
				c.wake = earlier(c.wake, end)
			} else {
				d.tryAgain(b, now, fx)
			}
		}
	}
}

// rouse begins anew the proofs of newcomers that were put off because nobody had answered
// with them: the holder that joins now may be the other one.
func (d *Detector) rouse(list []*binding, now time.Time, fx *Effects) {
	for _, b := range list {
		if p := b.probe; p != nil && !p.proven && p.phase == waiting && p.retry.Equal(p.again) {
			d.beginProof(b, now, fx)
		}
	}
}

// beginProof begins the proof of a newcomer anew, and at once.
func (d *Detector) beginProof(b *binding, now time.Time, fx *Effects) {
	p := b.probe
	p.witnesses, p.first, p.latest = nil, time.Time{}, time.Time{}
	d.startRound(b, now, fx)
}

// waitsFor reports whether a witness of a newcomer is still there.
func waitsFor(b *binding, list []*binding) bool {
	return slices.ContainsFunc(b.probe.witnesses, func(w witness) bool {
		return slices.ContainsFunc(list, func(o *binding) bool { return o.holder.ID == w.id })
	})
}

// collectWitnesses remembers who answered within answerTime of the newcomer's first answer.
func (d *Detector) collectWitnesses(b *binding, list []*binding) {
	p := b.probe
	for _, o := range list {
		if o == b || slices.ContainsFunc(p.witnesses, func(w witness) bool { return w.id == o.holder.ID }) {
			continue
		}
		for _, at := range []time.Time{o.probe.first, o.probe.latest} {
			if !at.IsZero() && within(at, p.first.Add(-answerTime), p.first.Add(answerTime)) {
				p.witnesses = append(p.witnesses, witness{o.holder.ID, at})
				break
			}
		}
	}
}

// attested reports whether a witness of the first round answered again with the newcomer,
// so that both had the address for MinOverlap; the same as provenTogether asks.
func (d *Detector) attested(b *binding, list []*binding) bool {
	p := b.probe
	return slices.ContainsFunc(list, func(o *binding) bool {
		i := slices.IndexFunc(p.witnesses, func(w witness) bool { return w.id == o.holder.ID })
		if o == b || i < 0 || !rivals([]*binding{b, o}) {
			return false
		}
		begin, end := later(p.first, p.witnesses[i].at), earlier(p.latest, o.probe.latest)
		return end.Sub(begin) >= d.opts.MinOverlap && p.latest.Sub(o.probe.latest).Abs() <= answerTime
	})
}

// call asks all others who did not answer since then whether they have the address, too.
func (d *Detector) call(b *binding, since time.Time, list []*binding, now time.Time, fx *Effects) {
	for _, o := range list {
		q := o.probe
		if o == b || q.phase != resting || !q.latest.Before(since) {
			continue
		}
		d.startRound(o, now, fx)
	}
}

// tryAgain begins the proof of a newcomer anew, at once or later and later: whoever
// else has the address may not be able to answer just now.
func (d *Detector) tryAgain(b *binding, now time.Time, fx *Effects) {
	p := b.probe
	p.newcomer = newcomer{tries: p.tries + 1}
	p.first, p.latest = time.Time{}, time.Time{}
	if p.tries == 1 {
		d.startRound(b, now, fx)
		return
	}
	p.phase, p.reason, p.refused = waiting, "", now
	p.retry = now.Add(min(time.Second<<min(p.tries, 5), slowRecheck))
	p.again = p.retry
}
