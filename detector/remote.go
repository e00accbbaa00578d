package detector

import (
	"slices"
	"time"
)

const (
	// unreachableTime is until the node of a remote holder that did not answer is asked
	// again; it doubles up to slowRecheck.
	unreachableTime = 2 * time.Second
	// maxEpisodes bounds what other nodes say of the past.
	maxOccurrences = 1 << 30
)

// receive prepares the sighting of a remote holder. It reports whether there is use for
// it: only a local holder makes it a matter of this node.
func (d *Detector) acceptRemote(s *Sighting, now time.Time) bool {
	s.Holder.Interface = Interface{} // it means nothing here
	e, id := d.entries[s.Key], s.Holder.ID
	refusal := Refusal(0)
	switch {
	case s.Evidence < Data, id.Netns == 0 && id.Ifindex == 0, id.Netns != 0 && id.Ifindex|id.Generation != 0:
		refusal = RefusedInvalid
	case e == nil || e.find(id) == nil && !e.hasLocal():
		refusal = RefusedNoHolder
	case e.find(id) != nil:
	case !s.Answer && d.suppressed(e, id, now) != 0:
		refusal = RefusedUnanswered
	case e.remotes(id.Node) >= maxRemoteOfNode, e.remotes("") >= maxRemote && e.unverified() == nil:
		refusal = RefusedKeyFull
	}
	if refusal != 0 {
		d.counters.refused[refusal]++
	}
	return refusal == 0
}

// remotes counts the remote holders of one node, or with "" of all.
func (e *entry) remotes(node string) (n int) {
	for _, b := range e.bindings {
		if b.remote && (node == "" || b.holder.ID.Node == node) {
			n++
		}
	}
	return n
}

// held reports whether a local holder has the address.
func (e *entry) hasLocal() bool {
	return slices.ContainsFunc(e.bindings, func(b *binding) bool { return !b.remote && b.counts() })
}

// unasked returns the remote holder that could not be asked for the longest and never has
// answered, nil if there is none. It makes room for another: what nobody can verify must
// not keep out what can be.
func (e *entry) unverified() *binding {
	for _, b := range e.bindings {
		if c := b.check; b.remote && c != nil && c.latest.IsZero() && !c.proven &&
			(c.phase == waiting || c.phase == blocked || c.noReply > 0) {
			return b
		}
	}
	return nil
}

// adopt takes over what a remote holder's node knows of the past.
func (d *Detector) updateRemote(b *binding, s *Sighting) {
	if before := b.firstSeen.Sub(s.FirstSeen); plausible(s.FirstSeen) && before > 0 {
		// Ages differ by the time that their messages took. Should the node's clock have been
		// stepped since, the new time would be off by an hour, and the difference is not.
		b.firstSeen = b.firstSeen.Add(-before)
	}
	// Only an answer says how it was found; that of an agent that has forgotten when it saw
	// the holder first, and finds it anew, says nothing of that time.
	if s.Answer && !s.FirstSeen.After(b.firstSeen.Add(time.Second)) {
		b.atStart = s.FoundAtStart
	}
	if e := b.entry; e.conflict == nil && s.Episodes > e.occurrences && s.Episodes <= maxOccurrences {
		d.setOccurrences(e, s.Episodes)
	}
}

// dropRemote forgets the remote holders of an address that nobody here has any more:
// other nodes go on with what is between them.
func (d *Detector) dropRemote(e *entry, now time.Time) {
	if e.conflict != nil || e.remotes("") == 0 || e.hasLocal() {
		return
	}
	for _, b := range slices.Clone(e.bindings) {
		if b.remote {
			d.remove(b, noteNotNeeded, "", now)
		}
	}
}

// Unanswered reports that a remote holder did not answer its own node or, with forwards,
// that it answered for an address it does not have. Its node judges its evidence; here it
// is no holder any more.
func (d *Detector) Unanswered(s Solicitation, forwards bool, now time.Time) Effects {
	var fx Effects
	b := d.inRound(s)
	if b == nil || !b.remote {
		return fx
	}
	b.check.forwards = forwards
	d.unanswered(b, now)
	d.update(b.entry, now, &fx)
	return fx
}

// Unreachable reports that the node of a remote holder did not answer, for the reason
// given or none. It is asked again after 2 s, 4 s and so on up to 30 s, and when there is
// news of the holder. Meanwhile the holder supports a suspicion and keeps a confirmed
// conflict open, as long as its TTL lasts, but nothing is confirmed with it.
func (d *Detector) Unreachable(s Solicitation, reason string, now time.Time) Effects {
	var fx Effects
	b := d.inRound(s)
	if b == nil || !b.remote {
		return fx
	}
	pause := min(unreachableTime<<min(b.check.noReply, 8), slowRecheck)
	b.check.noReply++
	d.refused(b, nonEmpty(reason, "node "+b.node()+" does not answer"), now.Add(pause), now, &fx)
	return fx
}

// Returned has the remote holders of a node asked at once that it had left unanswered,
// because it is heard again.
func (d *Detector) Returned(node string, now time.Time) Effects {
	var fx Effects
	var affected []*binding
	for e := range d.open {
		for _, b := range e.bindings {
			if b.holder.ID.Node == node && b.remote && b.check != nil && b.check.phase == waiting && b.check.noReply > 0 {
				affected = append(affected, b)
			}
		}
	}
	slices.SortFunc(affected, compareBindings)
	for _, b := range affected {
		d.startRound(b, now, &fx)
		d.update(b.entry, now, &fx)
	}
	return fx
}

// Doubt has a remote holder asked now, because its node has said unasked that it is gone.
// That may be old, so nothing ends by it.
func (d *Detector) Doubt(key Key, id HolderID, now time.Time) Effects {
	var fx Effects
	b := d.entries[key].find(id)
	if b == nil || !b.remote || b.check == nil || b.check.phase == probing {
		return fx
	}
	d.startRound(b, now, &fx)
	d.update(b.entry, now, &fx)
	return fx
}

// questioned returns the binding that a solicitation of the present round is about; nil
// if it is not asked any more.
func (d *Detector) inRound(s Solicitation) *binding {
	b := d.entries[s.Key].find(s.Holder)
	if b == nil || b.check == nil || b.check.phase != probing || s.Round != 0 && s.Round != b.check.id {
		return nil
	}
	return b
}
