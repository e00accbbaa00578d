package detector

import (
	"slices"
	"time"
)

// strike counts how often a holder that announces an address did not answer for it.
type strike struct {
	holder HolderID
	count  int
	at     time.Time
	until  time.Time
}

const (
	maxStrikes  = 8
	freeStrikes = 2
)

// strike makes a holder that again and again announces and does not answer wait
// longer and longer, up to a quarter of the TTL, until an announcement alone raises a
// suspicion again.
func (e *entry) strike(id HolderID, now time.Time, ttl time.Duration) {
	e.strikes = slices.DeleteFunc(e.strikes, func(s strike) bool { return now.Sub(s.at) >= ttl })
	s := e.strikeOf(id)
	if s == nil {
		if len(e.strikes) == maxStrikes {
			e.strikes = slices.Delete(e.strikes, 0, 1)
		}
		e.strikes = append(e.strikes, strike{holder: id})
		s = &e.strikes[len(e.strikes)-1]
	}
	s.count++
	s.at = now
	if s.count > freeStrikes {
		quiet := min(time.Second<<min(s.count, 16), ttl/4)
		s.until = now.Add(quiet)
	}
}

func (e *entry) strikeOf(id HolderID) *strike {
	if e == nil {
		return nil
	}
	for i := range e.strikes {
		if e.strikes[i].holder == id {
			return &e.strikes[i]
		}
	}
	return nil
}

// DeafUntil is until when announcements of a holder that did not answer for them, again and
// again, count for nothing; zero if they count.
func (d *Detector) DeafUntil(key Key, id HolderID) time.Time {
	if s := d.entries[key].strikeOf(id); s != nil {
		return s.until
	}
	return time.Time{}
}

// pardon forgets the strikes of a holder that answered.
func (e *entry) pardon(id HolderID) {
	if e.strikes != nil {
		e.strikes = slices.DeleteFunc(e.strikes, func(s strike) bool { return s.holder == id })
	}
}
