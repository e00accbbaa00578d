package detector

import (
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// deafTime is how far an answer to somebody else and a probe of this node that is not answered may be apart.
const deafTime = 2 * time.Second

// deaf is a holder that answers others, and not this agent: twice it has left a probe unanswered and answered somebody else within deafTime
// of it. What is silent to everybody is none: that is lawful, and often wanted (NOARP, arp_ignore, the servers of a load balancer).
//
// Its answers to others prove what answers to probes prove of others: together with the holders that answered within pairTime of both. It
// outlives its binding, which ends with each suspicion that fades. An answer to this agent ends it.
type deaf struct {
	holder HolderID
	probed time.Time              // the last probe that counts
	first  time.Time              // when it answered somebody else first
	with   map[HolderID]time.Time // who has answered at about that time, and when both had
	proved bool                   // twice
}

// deafOf returns what is known of a holder that may be deaf, nil if there is nothing.
func (e *entry) deafOf(id HolderID) *deaf {
	for i := range e.deaf {
		if e.deaf[i].holder == id {
			return &e.deaf[i]
		}
	}
	return nil
}

// forgetDeaf forgets those that have answered nobody for the TTL.
func (e *entry) forgetDeaf(now time.Time) {
	e.deaf = slices.DeleteFunc(e.deaf, func(d deaf) bool {
		last := d.probed
		if b := e.find(d.holder); b != nil {
			last = schedule.Later(last, b.overheard)
		}
		return now.Sub(last) >= bindingTTL
	})
}

// isDeaf reports whether a holder answers others, and not this agent.
func (b *binding) isDeaf() bool {
	d := b.entry.deafOf(b.holder.ID)
	return d != nil && d.proved
}

// hears notes an answer of a local holder to this agent: it is not deaf.
func (b *binding) hears() {
	b.entry.deaf = slices.DeleteFunc(b.entry.deaf, func(d deaf) bool { return d.holder == b.holder.ID })
}

// overhear looks at a round that is over. It reports whether the holder has left its probe unanswered and answered somebody else, for the
// second time.
func (v *verifier) overhear(b *binding, now time.Time) bool {
	e, c, id := b.entry, b.check, b.holder.ID
	if b.remote || c.sent.IsZero() || now.Sub(c.sent) < AnswerTime || c.heard || b.overheard.Sub(c.sent).Abs() > deafTime {
		return false
	}
	e.forgetDeaf(now)
	d := e.deafOf(id)
	if d == nil {
		if len(e.deaf) == maxHolders {
			e.deaf = slices.Delete(e.deaf, 0, 1)
		}
		e.deaf = append(e.deaf, deaf{holder: id, first: b.overheard, with: b.answeredWith()})
		d = &e.deaf[len(e.deaf)-1]
	}
	if d.probed.Equal(c.sent) {
		return d.proved
	}
	d.probed = c.sent
	e.record(now, id, noteOverheard, "")
	if b.overheard.Sub(d.first) < v.overlap {
		return d.proved
	}
	d.proved = true
	with := b.answeredWith()
	both := maps.Clone(with)
	maps.DeleteFunc(both, func(other HolderID, _ time.Time) bool { return d.with[other].IsZero() })
	if len(both) == 0 {
		d.first, d.with = b.overheard, with // another one has the address now
		return true
	}
	c.latest, c.asked = b.overheard, b.overheard
	for _, other := range e.bindings {
		if o := other.check; !both[other.holder.ID].IsZero() {
			if c.proven = c.proven || o.proven; other.overheard.After(o.latest) {
				o.latest, o.asked = other.overheard, other.overheard
			}
			c.unite(o, d.with[other.holder.ID])
		}
	}
	return true
}

// answeredWith returns the other holders that had the address when the holder answered somebody else last: those of a confirmed conflict,
// and those that answered at about that time; and from when on both had answered.
func (b *binding) answeredWith() map[HolderID]time.Time {
	all := make(map[HolderID]time.Time)
	for _, other := range b.entry.bindings {
		o := other.check
		if other == b || o == nil {
			continue
		}
		switch last := schedule.Later(o.latest, other.overheard); {
		case o.proven && o.silent.IsZero():
			all[other.holder.ID] = b.overheard
		case !last.IsZero() && last.Sub(b.overheard).Abs() <= pairTime:
			all[other.holder.ID] = schedule.Later(last, b.overheard)
		}
	}
	return all
}
