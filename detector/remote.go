package detector

import (
	"time"
)

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
