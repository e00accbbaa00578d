package detector

import (
	"slices"
	"time"
)

// past is one resolved conflict.
type past struct {
	entry    *entry
	conflict Conflict
}

// remember adds a resolved conflict to the history; the oldest one makes room.
func (d *Detector) remember(e *entry, c Conflict) {
	c.Holders = slices.Clone(c.Holders)
	d.history = append(d.history, past{e, c})
	e.kept++
	if len(d.history) <= d.opts.MaxHistory {
		return
	}
	oldest := d.history[0].entry
	d.history = slices.Delete(d.history, 0, 1)
	oldest.kept--
	if len(oldest.bindings) == 0 && oldest.conflict == nil {
		d.retire(oldest)
	}
}

// lastResolved returns the last resolved conflict of an entry, or nil.
func (d *Detector) lastResolved(e *entry) *Conflict {
	if e.kept == 0 {
		return nil
	}
	for i := len(d.history) - 1; i >= 0; i-- {
		if d.history[i].entry == e {
			c := d.history[i].conflict.clone()
			return &c
		}
	}
	return nil
}

func (c Conflict) clone() Conflict {
	c.Holders = slices.Clone(c.Holders)
	return c
}

// tombstones remembers for a short while which interfaces were withdrawn, because
// what was seen on them may still be under way.
type tombstones struct{ list []tombstone }

type tombstone struct {
	iface Interface
	at    time.Time
}

const (
	tombstoneTime = 10 * time.Second
	maxTombstones = 256
)

func (t *tombstones) add(i Interface, now time.Time) {
	t.prune(now)
	t.list = slices.DeleteFunc(t.list, func(x tombstone) bool { return x.iface == i })
	if len(t.list) == maxTombstones {
		t.list = slices.Delete(t.list, 0, 1)
	}
	t.list = append(t.list, tombstone{i, now})
}

func (t *tombstones) prune(now time.Time) {
	n := 0
	for n < len(t.list) && now.Sub(t.list[n].at) > tombstoneTime {
		n++
	}
	if n > 0 {
		t.list = slices.Delete(t.list, 0, n)
	}
}

// covers reports whether a sighting at that time is from before the withdrawal.
func (t *tombstones) covers(i Interface, at time.Time) bool {
	for k := range t.list {
		if t.list[k].iface == i {
			return !at.After(t.list[k].at)
		}
	}
	return false
}

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

// pardon forgets the strikes of a holder that answered.
func (e *entry) pardon(id HolderID) {
	if e.strikes != nil {
		e.strikes = slices.DeleteFunc(e.strikes, func(s strike) bool { return s.holder == id })
	}
}
