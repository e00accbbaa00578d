package detector

import (
	"slices"
	"time"
)

// A penalty makes the detector disbelieve, for a while, a holder that did not answer for an
// address. A holder that has only sent data is suppressed for the TTL or until it announces
// the address. One that announced it is suppressed for 1 s, which doubles with each further
// penalty up to a quarter of the TTL. What a suppressed holder sends is taken for forwarded until
// then. An answer resets the penalty at once; else it is forgotten after the TTL.
type penalty struct {
	holder HolderID
	level  int // penalties since it announced the address first; 0 if it has only sent data
	at     time.Time
}

// maxPenalties bounds the penalties of one key, so that there is one for each of its holders.
const maxPenalties = maxHolders

// until is when the suppression ends.
func (p *penalty) until(ttl time.Duration) time.Time {
	if p.level == 0 {
		return p.at.Add(ttl)
	}
	return p.at.Add(min(time.Second<<min(p.level-1, 16), ttl/4))
}

// suppresses returns the strongest evidence that does not count until then.
func (p *penalty) suppresses() Evidence {
	if p.level == 0 {
		return Data
	}
	return Announced
}

// penalize suppresses a holder that did not answer, and returns for how long. The node of a remote holder judges its
// evidence, so that is suppressed as if it had announced the address.
func (d *Detector) penalize(b *binding, now time.Time) time.Duration {
	e, id := b.entry, b.holder.ID
	e.penalties = slices.DeleteFunc(e.penalties, func(p penalty) bool { return now.Sub(p.at) >= d.opts.TTL })
	p := e.penalty(id)
	if p == nil {
		if len(e.penalties) == maxPenalties {
			e.penalties = slices.Delete(e.penalties, 0, 1)
		}
		e.penalties = append(e.penalties, penalty{holder: id})
		p = &e.penalties[len(e.penalties)-1]
	}
	if b.remote || b.evidence != Data || p.level > 0 {
		p.level++
	}
	p.at = now
	return p.until(d.opts.TTL).Sub(now)
}

// penalty returns the penalty of a holder, nil if it has none.
func (e *entry) penalty(id HolderID) *penalty {
	if e == nil {
		return nil
	}
	for i := range e.penalties {
		if e.penalties[i].holder == id {
			return &e.penalties[i]
		}
	}
	return nil
}

// resetPenalty forgets the penalty of a holder.
func (e *entry) resetPenalty(id HolderID) {
	e.penalties = slices.DeleteFunc(e.penalties, func(p penalty) bool { return p.holder == id })
}

// believed returns what a sighting is evidence of now, and resets the penalty where it is more
// than what is suppressed.
func (d *Detector) believed(e *entry, s *Sighting, now time.Time) Evidence {
	p := e.penalty(s.Holder.ID)
	switch {
	case p == nil || s.Evidence == Forwarded:
	case s.Answer || s.Evidence > p.suppresses():
		e.resetPenalty(s.Holder.ID)
	case now.Before(p.until(d.opts.TTL)):
		return Forwarded
	}
	return s.Evidence
}

// DeafUntil is until when announcements of a holder that did not answer for them count for
// nothing; zero if they count.
func (d *Detector) DeafUntil(key Key, id HolderID) time.Time {
	if p := d.entries[key].penalty(id); p != nil && p.level > 0 {
		return p.until(d.opts.TTL)
	}
	return time.Time{}
}
