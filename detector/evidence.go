package detector

import (
	"cmp"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// recordSighting applies a sighting to a binding. It reports whether the entry must be updated.
func (d *Detector) recordSighting(b *binding, s *Sighting, now time.Time, fresh bool, fx *Effects) bool {
	ev := d.effectiveEvidence(b.entry, s, now)
	src := b.source(s.Holder.Interface)
	if src == nil {
		if !d.makeRoomOn(s.Holder.Interface, rankOf(ev, false), now) {
			return false
		}
		src = d.addSource(b, &s.Holder)
		b.entry.record(now, s.Holder.ID, noteOtherDevice, s.Holder.InterfaceName)
	}
	if mac := s.Holder.MAC; mac != src.mac && mac != (MAC{}) {
		if src.mac != (MAC{}) {
			b.entry.record(now, s.Holder.ID, noteOtherMAC, "from "+src.mac.String()+" to "+mac.String())
		}
		src.mac = mac
	}
	src.name = cmp.Or(s.Holder.InterfaceName, src.name)
	if s.Late > 0 {
		b.entry.record(now, s.Holder.ID, noteLate, roughly(s.Late))
	}
	kept := ev
	if s.Evidence == Announced || s.Evidence == Claimed {
		kept = s.Evidence // counts when the suppression ends
	}
	src.last[kept] = schedule.Later(src.last[kept], s.At)
	if s.Answer {
		b.stopped = time.Time{} // its agent is there again
	}
	if ev >= Claimed {
		if s.Answer && b.refresh.count > 0 && b.check == nil {
			t := noteRefreshed
			if s.Evidence == Configured {
				t = noteListed
			}
			b.entry.record(now, s.Holder.ID, t, "")
		}
		b.refresh.count, b.refresh.after = 0, time.Time{}
	}

	was, pod := b.evidence, b.holder.Pod
	if b.evidence == 0 || ev > b.evidence {
		d.setEvidence(b, ev, now, "")
	} else {
		d.ranks[b.rank].MoveToBack(b.elem)
	}
	b.describe(&s.Holder)
	d.noteChange(b)

	checked := b.check != nil && d.checkSighting(b, s, now, fx)
	return fresh || checked || b.evidence != was || b.holder.Pod != pod
}

// describe updates the description from the latest source.
func (b *binding) describe(h *Holder) {
	src := b.latestSource()
	b.holder.Interface = src.iface
	b.holder.InterfaceName = cmp.Or(src.name, b.holder.InterfaceName)
	if src.mac != (MAC{}) {
		b.holder.MAC = src.mac
	}
	if h == nil {
		return
	}
	b.holder.NetnsName = cmp.Or(h.NetnsName, b.holder.NetnsName)
	if b.holder.Bridge = cmp.Or(h.Bridge, b.holder.Bridge); !b.remote {
		b.holder.Bridge = h.Bridge // it may have left one
	}
	if h.Pod != (Pod{}) {
		b.holder.describePod(h)
	}
}

// describePod copies the workload of another description.
func (h *Holder) describePod(from *Holder) {
	h.Pod, h.CreatedAt, h.Sandbox, h.Given = from.Pod, from.CreatedAt, from.Sandbox, from.Given
}

// refreshEvidence drops evidence that is older than the TTL or from a source that is gone. It
// reports whether any is left; the caller removes a binding without.
func (d *Detector) refreshEvidence(b *binding, now time.Time, t *template, arg string) bool {
	ev := d.strongest(b, now)
	if ev != 0 && ev != b.evidence {
		d.setEvidence(b, ev, now, b.because(t, arg))
		b.describe(nil)
	}
	return ev != 0
}

// strongest returns the strongest evidence seen within the TTL; Forwarded if a penalty suppresses it, and 0
// if there is none.
func (d *Detector) strongest(b *binding, now time.Time) Evidence {
	for ev := Host; ev >= Forwarded; ev-- {
		if t := b.lastOf(ev); !t.IsZero() && now.Sub(t) < bindingTTL {
			if ev <= d.suppressed(b.entry, b.holder.ID, now) {
				return Forwarded
			}
			return ev
		}
	}
	return 0
}

// setEvidence changes the evidence of a binding; nothing else does. If the binding does not count any more,
// an open conflict loses its holder, and why is the reason.
func (d *Detector) setEvidence(b *binding, ev Evidence, now time.Time, why string) {
	was := b.evidence
	if was >= Claimed && ev < Claimed {
		d.noteEnd(b)
		if c := b.entry.conflict; c != nil {
			c.lose(b, why)
		}
		if b.check != nil {
			b.check.unpair()
		}
		b.check, b.counted = nil, time.Time{}
	}
	if ev == 0 || was >= Claimed && ev < Claimed {
		for i := range b.sources {
			d.noteEnded(b, b.sources[i].iface)
		}
	}
	b.evidence = ev
	if b.remote {
		d.remotes[was]--
		d.remotes[ev]++
	}
	if was < Claimed && ev >= Claimed {
		b.counted, b.life = b.lastOf(ev), uint64(now.UnixNano())
		if b.remote {
			b.counted, b.life = b.firstSeen, 0 // its node says it
		}
	}
	if was != 0 && ev != 0 {
		b.entry.record(now, b.holder.ID, noteOtherEvidence, ev.String()+", was "+was.String())
	}
	if ev >= Claimed {
		b.entry.hasStory = true
	}

	if b.elem != nil {
		d.ranks[b.rank].Remove(b.elem)
		b.elem = nil
	}
	if ev != 0 {
		b.rank = rankOf(ev, b.entry.penalty(b.holder.ID) != nil)
		b.elem = d.ranks[b.rank].PushBack(b)
	}
	d.noteChange(b)
}

// forwardsOnly changes the evidence of a binding to Forwarded.
func (d *Detector) forwardsOnly(b *binding, why string, now time.Time) {
	for i := range b.sources {
		last := &b.sources[i].last
		*last = [Host + 1]time.Time{Forwarded: b.sources[i].seen()}
	}
	d.setEvidence(b, Forwarded, now, why)
}
