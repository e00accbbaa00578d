package detector

import "time"

// sight applies a sighting to a binding. It reports whether anything changed that may
// matter to a conflict or bring a deadline forward.
func (d *Detector) sight(b *binding, s *Sighting, now time.Time, fresh bool, fx *Effects) bool {
	ev := d.believed(b.entry, s, now)
	src, novel := b.source(s.Holder.Interface), fresh
	if src == nil {
		if !d.makeRoomOn(s.Holder.Interface, rankOf(ev, false), now) {
			return false
		}
		src, novel = d.addSource(b, &s.Holder), true
		b.entry.record(now, s.Holder.ID, noteOtherDevice, s.Holder.InterfaceName)
	}
	if mac := s.Holder.MAC; mac != src.mac && mac != (MAC{}) {
		if src.mac != (MAC{}) {
			novel = true
			b.entry.record(now, s.Holder.ID, noteOtherMAC, "from "+src.mac.String()+" to "+mac.String())
		}
		src.mac = mac
	}
	if s.Holder.InterfaceName != "" {
		src.name = s.Holder.InterfaceName
	}
	kept := ev
	if s.Evidence == Announced {
		kept = Announced // counts when the suppression ends
	}
	src.last[kept] = later(src.last[kept], s.At)
	if ev >= Data {
		if s.Answer && b.refreshes > 0 && b.check == nil {
			b.entry.record(now, s.Holder.ID, noteRefreshed, "")
		}
		b.refreshes, b.refreshAfter = 0, time.Time{}
	}

	was := b.evidence
	if b.evidence == 0 || ev > b.evidence {
		d.setEvidence(b, ev, now, "")
	} else {
		d.ranks[b.rank].MoveToBack(b.elem)
	}
	b.describe(&s.Holder)
	d.mark(b)

	changed := fresh || b.evidence != was
	if b.check != nil && d.sighted(b, s, novel, now, fx) {
		changed = true
	}
	return changed
}

// describe brings the description up to date with the freshest source.
func (b *binding) describe(h *Holder) {
	src := b.freshest()
	b.holder.Interface = src.iface
	if src.name != "" {
		b.holder.InterfaceName = src.name
	}
	if src.mac != (MAC{}) {
		b.holder.MAC = src.mac
	}
	if h == nil {
		return
	}
	if h.NetnsName != "" {
		b.holder.NetnsName = h.NetnsName
	}
	if h.Pod != (Pod{}) {
		b.holder.Pod, b.holder.CreatedAt, b.holder.Sandbox = h.Pod, h.CreatedAt, h.Sandbox
	}
}

// refreshEvidence lets evidence go that is older than the TTL or came from a source that
// is no more. A binding that is left with none (0) is for the caller to remove.
func (d *Detector) refreshEvidence(b *binding, now time.Time, why string) {
	ev := b.strongest(now, d.opts.TTL)
	if ev == b.evidence {
		return
	}
	d.setEvidence(b, ev, now, b.String()+" "+why)
	if ev != 0 {
		b.describe(nil)
	}
}

// setEvidence is the only place that changes the evidence of a binding. When the
// binding ceases to count, an open conflict loses it for the reason why.
func (d *Detector) setEvidence(b *binding, ev Evidence, now time.Time, why string) {
	was := b.evidence
	if was >= Data && ev < Data {
		d.markEnd(b, why)
		if c := b.entry.conflict; c != nil {
			c.lose(b, why)
		}
		b.check, b.counted = nil, time.Time{}
	}
	b.evidence = ev
	if b.remote {
		d.remotes[was]--
		d.remotes[ev]++
	}
	if was < Data && ev >= Data {
		b.counted = b.lastOf(ev)
		if b.remote {
			b.counted = b.firstSeen
		}
	}
	if was != 0 && ev != 0 && was != ev {
		b.entry.record(now, b.holder.ID, noteOtherEvidence, ev.String()+", was "+was.String())
	}
	if ev >= Data {
		b.entry.storied = true
	}

	if b.elem != nil {
		d.ranks[b.rank].Remove(b.elem)
		b.elem = nil
	}
	if ev != 0 {
		b.rank = rankOf(ev, b.entry.penalty(b.holder.ID) != nil)
		b.elem = d.ranks[b.rank].PushBack(b)
	}
	d.mark(b)
}

// demote turns a binding into a forwarded one.
func (d *Detector) demote(b *binding, why string, now time.Time) {
	for i := range b.sources {
		last := &b.sources[i].last
		*last = [Host + 1]time.Time{Forwarded: b.sources[i].seen()}
	}
	d.setEvidence(b, Forwarded, now, why)
}

// refreshDue returns when a silent binding is to be solicited next; zero for never.
// The first time is half the TTL after the last evidence, the second three quarters, and
// then the next of the moments that are a second apart, with the default TTL: to wake up
// once for a few addresses costs less than for each.
func (d *Detector) refreshDue(b *binding) time.Time {
	ttl := d.opts.TTL
	if !b.counts() || b.remote || b.refreshes >= 2 {
		return time.Time{}
	}
	after := ttl / 2
	if b.refreshes == 1 {
		after = ttl / 4 * 3
	}
	at := later(b.lastCounted().Add(after+b.jitter), b.refreshAfter)
	grid := max(ttl/300, 1)
	if rest := at.Sub(d.born) % grid; rest > 0 {
		at = at.Add(grid - rest)
	}
	return at
}

// refresh solicits a binding that has been silent for long.
func (d *Detector) refresh(b *binding, now time.Time, fx *Effects) {
	due := d.refreshDue(b)
	if b.entry.conflict != nil || due.IsZero() || due.After(now) {
		return
	}
	b.refreshes++
	b.refreshAfter = now.Add(d.opts.TTL / 8) // both may be overdue after a suspicion
	fx.Solicit = append(fx.Solicit, Solicitation{
		Key: b.entry.key, Holder: b.holder.ID, Interface: b.freshest().iface, Purpose: Refresh,
	})
}
