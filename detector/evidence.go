package detector

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// accept prepares a sighting, and reports whether it is recorded, as far as that does not depend on limits. It counts one that is not.
func (t *table) accept(s *Sighting, now time.Time) bool {
	if s.At.IsZero() || s.At.After(now) {
		s.At = now
	}
	if !s.Key.IP.IsValid() || s.Holder.ID == (HolderID{}) || s.Evidence < Forwarded || s.Evidence > Host {
		t.refuse(refusedInvalid)
		return false
	}
	if now.Sub(s.At) >= bindingTTL {
		t.refuse(refusedOld)
		return false
	}
	if s.Answer && s.Evidence == Data {
		s.Evidence = Announced // the holder itself answered
	}
	return s.Holder.ID.Node == t.opts.Node || t.acceptRemote(s, now)
}

// record applies a sighting to a binding, and reports whether that changed more than when it was seen. It does nothing if a limit is reached.
func (t *table) record(b *binding, s *Sighting, now time.Time) (changed, ok bool) {
	ev := b.entry.effective(s, now)
	src := b.source(s.Holder.Interface)
	if src == nil {
		if !t.makeRoomOn(s.Holder.Interface, rankOf(ev, false), now) {
			return false, false
		}
		src = t.addSource(b, &s.Holder)
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
	if b.listed = s.Listed; s.Answer && s.Overheard && s.Evidence >= Claimed {
		b.overheard = schedule.Later(b.overheard, s.At)
	} else if s.Answer && !b.remote && s.Evidence >= Claimed {
		b.hears()
	}
	kept := ev
	if s.Evidence == Announced || s.Evidence == Claimed || b.mustBeHeard() {
		kept = s.Evidence // counts when the suppression ends
	}
	src.last[kept] = schedule.Later(src.last[kept], s.At)
	if s.Answer {
		b.stopped = time.Time{} // its agent is there again
	}
	if ev >= Claimed {
		if s.Answer && b.refresh.count > 0 && b.check == nil {
			n := noteRefreshed
			if s.Evidence == Configured {
				n = noteListed
			}
			b.entry.record(now, s.Holder.ID, n, "")
		}
		b.refresh.count, b.refresh.after = 0, time.Time{}
	}

	was, pod := b.evidence, b.holder.Pod
	if b.evidence == 0 || ev > b.evidence {
		t.setEvidence(b, ev, now, "")
	} else {
		t.ranks[b.rank].MoveToBack(b.elem)
	}
	b.describe(&s.Holder)
	t.note(b)
	return b.evidence != was || b.holder.Pod != pod, true
}

// release lets the holders count again that were suppressed because they were not heard, and need not be heard any more.
func (t *table) release(e *entry, now time.Time) {
	for _, b := range e.bindings {
		if e.penalties.unheard(b.holder.ID) && !b.mustBeHeard() {
			e.penalties.reset(b.holder.ID)
			t.refreshEvidence(b, now, noteTTL, "")
		}
	}
}

// expire ends the bindings of an entry that were not seen for long, or whose agent was stopped long ago.
func (t *table) expire(e *entry, now time.Time) {
	ttl := bindingTTL.String()
	e.forgetDeaf(now)
	for _, b := range slices.Clone(e.bindings) {
		if !b.stopped.IsZero() && now.Sub(b.stopped) >= stoppedTime {
			t.remove(b, noteStopped, stoppedTime.String(), now)
		} else if !t.refreshEvidence(b, now, noteTTL, ttl) {
			t.remove(b, noteTTL, ttl, now)
		}
	}
}

// refreshEvidence drops evidence that is older than the TTL or from a source that is gone. It
// reports whether any is left; the caller removes a binding without.
func (t *table) refreshEvidence(b *binding, now time.Time, n *template, arg string) bool {
	ev := b.strongest(now)
	if ev != 0 && ev != b.evidence {
		t.setEvidence(b, ev, now, b.because(n, arg))
		b.describe(nil)
	}
	return ev != 0
}

// forwardsOnly changes the evidence of a binding to Forwarded.
func (t *table) forwardsOnly(b *binding, why string, now time.Time) {
	for i := range b.sources {
		last := &b.sources[i].last
		*last = [Host + 1]time.Time{Forwarded: b.sources[i].seen()}
	}
	t.setEvidence(b, Forwarded, now, why)
}

// maxOccurrences limits the occurrences that other nodes report.
const maxOccurrences = 1 << 30

// acceptRemote prepares the sighting of a remote holder and reports whether it is accepted. A sighting is
// accepted only if a local holder has the address, too.
func (t *table) acceptRemote(s *Sighting, now time.Time) bool {
	s.Holder.Interface = Interface{} // it is an interface of another node
	e, id := t.entries[s.Key], s.Holder.ID
	refusal := ""
	switch {
	case s.Evidence < Claimed, id.Netns == 0 && id.Ifindex == 0, id.Netns != 0 && id.Ifindex|id.Generation != 0:
		refusal = refusedInvalid
	case e == nil || e.find(id) == nil && !e.hasLocal():
		refusal = refusedNoHolder
	case e.find(id) != nil:
	case !s.Answer && e.penalties.suppressed(id, now) != 0:
		refusal = refusedUnanswered
	case e.remotes(id.Node) >= maxRemoteOfNode, e.remotes("") >= maxRemote && e.unverified() == nil:
		refusal = refusedKeyFull
	}
	if refusal != "" {
		t.refuse(refusal)
	}
	return refusal == ""
}

// updateRemote copies what the node of a remote holder knows about its past.
func (t *table) updateRemote(b *binding, s *Sighting) {
	if before := b.firstSeen.Sub(s.FirstSeen); plausible(s.FirstSeen) && before > 0 {
		// The age is used, because the time is wrong if a clock was stepped meanwhile.
		b.firstSeen = b.firstSeen.Add(-before)
	}
	// Only answers have FirstSeen. An agent that lost its state reports a later time.
	if s.Answer && !s.FirstSeen.After(b.firstSeen.Add(time.Second)) {
		b.atStart = s.FoundAtStart
	}
	if e := b.entry; e.conflict == nil && s.Occurrences > e.occurrences && s.Occurrences <= maxOccurrences {
		t.setOccurrences(e, s.Occurrences)
	}
}
