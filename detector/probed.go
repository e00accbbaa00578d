package detector

import (
	"slices"
	"time"
)

// Probed reports what became of a probe, but for an answer: that is a sighting. It does nothing if the round of the probe is over.
//
//   - Sent: the deadline of a round runs from the first report.
//   - Refused, for a remote holder by its node: the holder is probed again when the guard allows it or, if no time is known, when it is
//     seen again, or after 30 s. Meanwhile it is neither verified nor lost.
//   - Unanswered, Forwards: its node has probed a remote holder. For this node the round is unanswered, too.
//   - Unreachable: the next probe request goes out after 2 s, 4 s and then every 5 s, or when the holder is seen again. Until its TTL is
//     over the holder supports a suspicion and keeps a confirmed conflict open, but it cannot be confirmed.
//   - Gone: its node has no such holder, so its binding ends. If the probe has no purpose, the node said so without a request. The message
//     may be old, so the holder is probed.
func (d *Detector) Probed(p Probe, r Result, now time.Time) Effects {
	e := d.table.entries[p.Key]
	b := e.find(p.Holder)
	switch inRound := b.inRound(p.Round); {
	case b == nil:
	case p.Purpose == Refresh:
		d.verifier.refreshed(b, r, now)
		d.table.settle(e, now)
	case r.Outcome == Gone && p.Purpose != "":
		return d.Withdraw(p.Key, p.Holder, r.Reason, now)
	case r.Outcome == Gone && b.remote && b.check != nil && b.check.phase != probing:
		d.verifier.start(b, now)
		d.update(e, now)
	case !inRound:
	case r.Outcome == Sent && !b.remote: // its node probes a remote holder as often as needed
		if d.verifier.sent(b, now) {
			d.table.settle(e, now)
		}
	case r.Outcome == Refused:
		b.check.noReply, b.stopped = 0, time.Time{}
		d.verifier.refused(b, r.Reason, r.Until, now)
		d.update(e, now)
	case (r.Outcome == Unanswered || r.Outcome == Forwards) && b.remote:
		b.check.forwards, b.stopped = r.Outcome == Forwards, time.Time{}
		d.lose(b, d.verifier.unanswered(b, now), now)
		d.update(e, now)
	case r.Outcome == Unreachable && b.remote:
		d.verifier.unreachable(b, now)
		d.update(e, now)
	}
	return d.effects()
}

// Returned reports that a node is alive again that did not reply to probe requests. The requests are sent
// again at once.
func (d *Detector) Returned(node string, now time.Time) Effects {
	var affected []*binding
	for e := range d.conflicts.open {
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
		d.verifier.start(b, now)
		d.update(b.entry, now)
	}
	return d.effects()
}

// Stopped reports that the agent of a node has ended in order: its holders are still there, mostly, and another agent begins soon. If none does,
// nobody observes them any more, and they do not keep a conflict open.
func (d *Detector) Stopped(node string, now time.Time) {
	for e := range d.conflicts.open {
		for _, b := range e.bindings {
			if b.remote && b.holder.ID.Node == node {
				b.stopped = now
				d.table.settle(e, now)
			}
		}
	}
}
