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
//   - So is one of another node that was not heard where it must be, whatever its evidence.
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
	// unheard: another node says that it has the address, and it was not heard: its word is suppressed, too.
	unheard bool
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
	switch {
	case p.level == 0:
		return Data
	case p.unheard:
		return Host
	}
	return Announced
}

// penalties are those of the holders of one key. It must not know who asked them, and why.
type penalties []penalty

// of returns the penalty of a holder, nil if it has none.
func (all penalties) of(id HolderID) *penalty {
	for i := range all {
		if all[i].holder == id {
			return &all[i]
		}
	}
	return nil
}

// suppressed returns the strongest evidence of a holder that does not count now; 0 for none.
func (all penalties) suppressed(id HolderID, now time.Time) Evidence {
	if p := all.of(id); p != nil && !p.lifted && now.Before(p.until()) {
		return p.suppresses()
	}
	return 0
}

// add suppresses a holder that did not answer, and returns for how long. announced is whether it announced the address, as far as is
// known: of a remote holder only its own node knows the evidence.
func (all *penalties) add(id HolderID, announced bool, now time.Time) time.Duration {
	*all = slices.DeleteFunc(*all, func(p penalty) bool { return now.Sub(p.at) >= bindingTTL })
	p := all.of(id)
	if p == nil {
		if len(*all) == maxPenalties {
			*all = slices.Delete(*all, 0, 1)
		}
		*all = append(*all, penalty{holder: id})
		p = &(*all)[len(*all)-1]
	}
	if announced || p.level > 0 {
		p.level++
	}
	p.at, p.lifted = now, false
	return p.until().Sub(now)
}

// addUnheard suppresses a holder on another node that was not heard, and returns for how long.
func (all *penalties) addUnheard(id HolderID, now time.Time) time.Duration {
	suppressed := all.add(id, true, now)
	all.of(id).unheard = true
	return suppressed
}

// unheard reports whether a holder is suppressed because it was not heard.
func (all penalties) unheard(id HolderID) bool {
	p := all.of(id)
	return p != nil && p.unheard
}

// reset forgets the penalty of a holder.
func (all *penalties) reset(id HolderID) {
	*all = slices.DeleteFunc(*all, func(p penalty) bool { return p.holder == id })
}

// effective returns the evidence of a sighting, which is Forwarded while a penalty suppresses it. A sighting with stronger
// evidence resets the penalty.
func (all *penalties) effective(s *Sighting, now time.Time) Evidence {
	id := s.Holder.ID
	switch p := all.of(id); {
	case p == nil || s.Evidence == Forwarded:
	case s.Answer && p.level > 0:
		p.lifted = true
	case s.Answer, s.Evidence > p.suppresses(), s.Evidence == Claimed && p.level == 0: // a claim is an announcement
		all.reset(id)
	}
	if s.Evidence <= all.suppressed(id, now) {
		return Forwarded
	}
	return s.Evidence
}
