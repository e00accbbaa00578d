package detector

import (
	"slices"
	"time"
)

// A penalty suppresses a holder that did not answer for an address: for a while, its evidence is
// Forwarded only.
//
//   - A holder that has only sent data is suppressed for the TTL, or until it announces the
//     address.
//   - A holder that announced it is suppressed for 1 s, which doubles with each penalty up to a
//     quarter of the TTL. An announcement during that time counts when the suppression ends.
//
// An answer ends the suppression. An answer in a round resets the penalty: a holder that answers
// other probes only is suppressed for longer each time. Without an answer, a penalty is forgotten after
// the TTL.
type penalty struct {
	holder HolderID
	level  int // how often the holder announced the address and did not answer
	at     time.Time
	lifted bool // the holder has answered since
}

// maxPenalties limits the penalties of one key: each of its holders may have one.
const maxPenalties = maxHolders

// until returns when the suppression ends.
func (p *penalty) until() time.Time {
	if p.level == 0 {
		return p.at.Add(bindingTTL)
	}
	return p.at.Add(min(time.Second<<min(p.level-1, 16), bindingTTL/4))
}

// suppresses returns the strongest evidence that does not count until then.
func (p *penalty) suppresses() Evidence {
	if p.level == 0 {
		return Data
	}
	return Announced
}

// penalty returns the penalty of a holder, nil if it has none. The entry may be nil.
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

// suppressed returns the strongest evidence of a holder that does not count now; 0 for none.
func (d *Detector) suppressed(e *entry, id HolderID, now time.Time) Evidence {
	if p := e.penalty(id); p != nil && !p.lifted && now.Before(p.until()) {
		return p.suppresses()
	}
	return 0
}

// penalize suppresses a holder that did not answer, and returns for how long. A remote holder is penalized
// as if it had announced the address, because only its own node knows its evidence.
func (d *Detector) penalize(b *binding, now time.Time) time.Duration {
	e, id := b.entry, b.holder.ID
	e.penalties = slices.DeleteFunc(e.penalties, func(p penalty) bool { return now.Sub(p.at) >= bindingTTL })
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
	p.at, p.lifted = now, false
	return p.until().Sub(now)
}

// resetPenalty forgets the penalty of a holder.
func (e *entry) resetPenalty(id HolderID) {
	e.penalties = slices.DeleteFunc(e.penalties, func(p penalty) bool { return p.holder == id })
}

// effectiveEvidence returns the evidence of a sighting, which is Forwarded while a penalty suppresses it. A
// sighting with stronger evidence resets the penalty.
func (d *Detector) effectiveEvidence(e *entry, s *Sighting, now time.Time) Evidence {
	id := s.Holder.ID
	switch p := e.penalty(id); {
	case p == nil || s.Evidence == Forwarded:
	case s.Answer && p.level > 0:
		p.lifted = true
	case s.Answer, s.Evidence > p.suppresses(), s.Evidence == Claimed && p.level == 0: // a claim is an announcement
		e.resetPenalty(id)
	}
	if s.Evidence <= d.suppressed(e, id, now) {
		return Forwarded
	}
	return s.Evidence
}

// SuppressedUntil returns until when a holder is not to be probed again, because it announced the address
// and did not answer in a round; zero for at once.
func (d *Detector) SuppressedUntil(key Key, id HolderID) time.Time {
	if p := d.entries[key].penalty(id); p != nil && p.level > 0 {
		return p.until()
	}
	return time.Time{}
}
