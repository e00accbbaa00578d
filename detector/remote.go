package detector

import (
	"slices"
	"time"
)

const (
	// stoppedTime is how long a remote holder stays whose agent has ended in order, if no other one begins.
	stoppedTime = remoteTime
	// unreachableTime is the first pause before another probe request to a node that did not reply.
	// It doubles up to recheckTime.
	unreachableTime = 2 * time.Second
	// maxOccurrences limits the occurrences that other nodes report.
	maxOccurrences = 1 << 30
)

// acceptRemote prepares the sighting of a remote holder and reports whether it is accepted. A sighting is
// accepted only if a local holder has the address, too.
func (d *Detector) acceptRemote(s *Sighting, now time.Time) bool {
	s.Holder.Interface = Interface{} // it is an interface of another node
	e, id := d.entries[s.Key], s.Holder.ID
	refusal := ""
	switch {
	case s.Evidence < Claimed, id.Netns == 0 && id.Ifindex == 0, id.Netns != 0 && id.Ifindex|id.Generation != 0:
		refusal = refusedInvalid
	case e == nil || e.find(id) == nil && !e.hasLocal():
		refusal = refusedNoHolder
	case e.find(id) != nil:
	case !s.Answer && d.suppressed(e, id, now) != 0:
		refusal = refusedUnanswered
	case e.remotes(id.Node) >= maxRemoteOfNode, e.remotes("") >= maxRemote && e.unverified() == nil:
		refusal = refusedKeyFull
	}
	if refusal != "" {
		d.counts.Refused[refusal]++
	}
	return refusal == ""
}

// remotes counts the remote holders of one node, or of all nodes if it is empty.
func (e *entry) remotes(node string) (n int) {
	for _, b := range e.bindings {
		if b.remote && (node == "" || b.holder.ID.Node == node) {
			n++
		}
	}
	return n
}

// hasLocal reports whether a local holder has the address.
func (e *entry) hasLocal() bool {
	return slices.ContainsFunc(e.bindings, func(b *binding) bool { return !b.remote && b.counts() })
}

// unverified returns the oldest remote holder that never answered and cannot be probed; nil if
// there is none. It makes room for another one, which perhaps can be verified.
func (e *entry) unverified() *binding {
	for _, b := range e.bindings {
		if c := b.check; b.remote && c != nil && c.latest.IsZero() && !c.proven &&
			(c.phase == waiting || c.phase == blocked || c.noReply > 0) {
			return b
		}
	}
	return nil
}

// updateRemote copies what the node of a remote holder knows about its past.
func (d *Detector) updateRemote(b *binding, s *Sighting) {
	if before := b.firstSeen.Sub(s.FirstSeen); plausible(s.FirstSeen) && before > 0 {
		// The age is used, because the time is wrong if a clock was stepped meanwhile.
		b.firstSeen = b.firstSeen.Add(-before)
	}
	// Only answers have FirstSeen. An agent that lost its state reports a later time.
	if s.Answer && !s.FirstSeen.After(b.firstSeen.Add(time.Second)) {
		b.atStart = s.FoundAtStart
	}
	if e := b.entry; e.conflict == nil && s.Occurrences > e.occurrences && s.Occurrences <= maxOccurrences {
		d.setOccurrences(e, s.Occurrences)
	}
}

// dropRemote forgets the remote holders of an address that no local holder has any more. Their nodes
// handle the rest of the conflict.
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

// Unanswered reports the reply of a node that its holder did not answer or, if forwards is set, that it
// answered for an address that it does not have. For this node the round is unanswered.
func (d *Detector) Unanswered(s Probe, forwards bool, now time.Time) (fx Effects) {
	if b := d.inRound(s); b != nil && b.remote {
		b.check.forwards, b.stopped = forwards, time.Time{}
		d.unanswered(b, now)
		d.update(b.entry, now, &fx)
	}
	return fx
}

// Unreachable reports that the node of a remote holder did not reply. The next probe request goes out
// after 2 s, 4 s and then every 5 s, or when the holder is seen again. Until its TTL is over the holder
// supports a suspicion and keeps a confirmed conflict open, but it cannot be confirmed.
func (d *Detector) Unreachable(s Probe, now time.Time) (fx Effects) {
	if b := d.inRound(s); b != nil && b.remote {
		pause := min(unreachableTime<<min(b.check.noReply, 8), recheckTime)
		b.check.noReply++
		reason := "node " + b.node() + " does not answer"
		if !b.stopped.IsZero() {
			reason = "the agent of node " + b.node() + " was stopped"
		}
		d.refused(b, reason, now.Add(pause), now, &fx)
	}
	return fx
}

// Returned reports that a node is alive again that did not reply to probe requests. The requests are sent
// again at once.
func (d *Detector) Returned(node string, now time.Time) (fx Effects) {
	var affected []*binding
	for e := range d.open {
		for _, b := range e.bindings {
			if b.holder.ID.Node != node || !b.remote {
				continue
			}
			b.stopped = time.Time{}
			if b.check != nil && b.check.phase == waiting && b.check.noReply > 0 {
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

// Stopped reports that the agent of a node has ended in order: its holders are still there, mostly, and another agent begins soon. If none does,
// nobody observes them any more, and they do not keep a conflict open.
func (d *Detector) Stopped(node string, now time.Time) {
	for e := range d.open {
		for _, b := range e.bindings {
			if b.remote && b.holder.ID.Node == node {
				b.stopped = now
				d.finish(e, now)
			}
		}
	}
}

// Recheck reports that a node withdrew a remote holder without a request. The message may be old, so the
// holder is probed now, and its binding stays.
func (d *Detector) Recheck(key Key, id HolderID, now time.Time) (fx Effects) {
	if b := d.entries[key].find(id); b != nil && b.remote && b.check != nil && b.check.phase != probing {
		d.startRound(b, now, &fx)
		d.update(b.entry, now, &fx)
	}
	return fx
}

// inRound returns the binding that a report of the present round is about; nil if that round is over.
func (d *Detector) inRound(s Probe) *binding {
	b := d.entries[s.Key].find(s.Holder)
	if b == nil || b.check == nil || b.check.phase != probing || s.Round != 0 && s.Round != b.check.id {
		return nil
	}
	return b
}
