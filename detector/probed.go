package detector

import (
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// ProbeSent reports that a probe of a local holder was sent. The deadline of a round runs from the
// first report.
func (d *Detector) ProbeSent(s Probe, now time.Time) {
	b := d.table.entries[s.Key].find(s.Holder)
	if b == nil {
		return
	}
	if s.Purpose == Refresh {
		b.entry.record(now, s.Holder, noteRefresh, "")
		return
	}
	if b.remote || d.table.inRound(s) == nil {
		return // its node probes a remote holder as often as needed
	}
	c := b.check
	t := noteProbed
	if c.proven {
		t = noteProbedAgain
	}
	b.entry.record(now, s.Holder, t, c.roundName())
	if c.sent.IsZero() {
		c.sent = now
		d.table.settle(b.entry, now)
	}
}

// ProbeRefused reports that a guard forbids to probe a holder until notBefore. If notBefore is zero, the
// holder is probed again when it is seen again, or after 30 s. Meanwhile it is neither verified nor lost.
// For a remote holder this is the reply of its node.
func (d *Detector) ProbeRefused(s Probe, reason string, notBefore, now time.Time) Effects {
	switch b := d.table.entries[s.Key].find(s.Holder); {
	case b == nil:
	case s.Purpose == Refresh:
		b.entry.record(now, s.Holder, noteNotProbed, reason)
		if !notBefore.IsZero() && b.refresh.count > 0 {
			b.refresh.count--
			b.refresh.after = schedule.Later(notBefore, now.Add(minRetry))
		}
		d.table.settle(b.entry, now)
	case d.table.inRound(s) != nil:
		b.check.noReply, b.stopped = 0, time.Time{}
		d.verifier.refused(b, reason, notBefore, now)
		d.update(b.entry, now)
	}
	return d.effects()
}

// Unanswered reports the reply of a node that its holder did not answer or, if forwards is set, that it
// answered for an address that it does not have. For this node the round is unanswered.
func (d *Detector) Unanswered(s Probe, forwards bool, now time.Time) Effects {
	if b := d.table.inRound(s); b != nil && b.remote {
		b.check.forwards, b.stopped = forwards, time.Time{}
		d.lose(b, d.verifier.unanswered(b, now), now)
		d.update(b.entry, now)
	}
	return d.effects()
}

// Unreachable reports that the node of a remote holder did not reply. The next probe request goes out
// after 2 s, 4 s and then every 5 s, or when the holder is seen again. Until its TTL is over the holder
// supports a suspicion and keeps a confirmed conflict open, but it cannot be confirmed.
func (d *Detector) Unreachable(s Probe, now time.Time) Effects {
	if b := d.table.inRound(s); b != nil && b.remote {
		d.verifier.unreachable(b, now)
		d.update(b.entry, now)
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

// Recheck reports that a node withdrew a remote holder without a request. The message may be old, so the
// holder is probed now, and its binding stays.
func (d *Detector) Recheck(key Key, id HolderID, now time.Time) Effects {
	if b := d.table.entries[key].find(id); b != nil && b.remote && b.check != nil && b.check.phase != probing {
		d.verifier.start(b, now)
		d.update(b.entry, now)
	}
	return d.effects()
}

// inRound returns the binding that a report of the present round is about; nil if that round is over.
func (t *table) inRound(s Probe) *binding {
	b := t.entries[s.Key].find(s.Holder)
	if b == nil || b.check == nil || b.check.phase != probing || s.Round != 0 && s.Round != b.check.id {
		return nil
	}
	return b
}
