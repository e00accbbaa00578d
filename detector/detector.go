package detector

import (
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// Detector has the bindings of one node, matches their holders and follows each conflict through
// its states. Use New. It is not safe for concurrent use, and the `now` of its calls must not go
// back.
type Detector struct {
	*changes
	table     *table
	verifier  *verifier
	conflicts *conflicts
}

// New returns an empty Detector.
func New(opts Options) *Detector {
	opts = opts.withDefaults()
	t := &table{
		opts: opts, entries: make(map[Key]*entry), holders: make(map[HolderID][]*binding), ifaces: make(map[Interface][]*binding), counts: newCounts(),
	}
	v := &verifier{overlap: opts.MinOverlap, nodeOverlap: opts.NodeOverlap, queues: opts.Budget != nil}
	l := &conflicts{
		table: t, verifier: v, open: make(map[*entry]struct{}), history: history{shares: make(map[kind]*share)}, counts: newCounts(),
		migrations: make(migrations), budget: opts.Budget,
		queues: newQueues(),
	}
	return &Detector{changes: &t.changes, table: t, verifier: v, conflicts: l}
}

// Observe records one sighting. It drops and counts a sighting that has no address, holder or known
// evidence, is older than the TTL, or exceeds a limit. It records a remote holder only if a local holder
// of the address counts.
//
// The Holder of the sighting updates the description of the binding; an unknown MAC and empty names
// change nothing.
func (d *Detector) Observe(s Sighting, now time.Time) Effects {
	if !d.table.accept(&s, now) {
		return d.effects(now)
	}
	b := d.table.entries[s.Key].find(s.Holder.ID)
	fresh := b == nil
	if fresh {
		if b = d.table.admit(&s, now); b == nil {
			return d.effects(now)
		}
		b.entry.conflict.inherit(b)
	}
	if b.remote {
		d.table.updateRemote(b, &s)
	}
	changed, ok := d.table.record(b, &s, now)
	if !ok {
		return d.effects(now)
	}
	if changed {
		d.table.release(b.entry, now)
	}
	if b.check != nil {
		checked, lost := d.verifier.sighted(b, &s, now)
		d.lose(b, lost, now)
		changed = changed || checked
	}
	if fresh || changed { // otherwise deadlines only moved to later times
		d.update(b.entry, now)
	}
	return d.effects(now)
}

// Withdraw ends the binding of one holder, for example because the address left its netns. It does
// nothing when there is none.
func (d *Detector) Withdraw(key Key, id HolderID, reason string, now time.Time) Effects {
	if b := d.table.entries[key].find(id); b != nil {
		d.table.remove(b, noteGone, reason, now)
		d.update(b.entry, now)
	}
	return d.effects(now)
}

// WithdrawInterface ends the bindings of an interface that is gone. A holder that has the address on
// another interface keeps its binding. The caller must drop later sightings from that interface.
func (d *Detector) WithdrawInterface(i Interface, reason string, now time.Time) Effects {
	affected := slices.Clone(d.table.ifaces[i])
	slices.SortFunc(affected, compareBindings)
	for _, b := range affected {
		isOnOthers := len(b.sources) > 1
		if isOnOthers {
			d.table.dropSource(b, i)
			isOnOthers = d.table.refreshEvidence(b, now, noteGoneOnOne, reason)
		}
		if isOnOthers {
			b.entry.record(now, b.holder.ID, noteGoneOnOne, reason)
			if b.check != nil && b.check.phase == probing {
				d.verifier.start(b, now) // the probes on the old interface may be lost
			}
		} else {
			d.table.remove(b, noteGone, reason, now)
		}
		d.update(b.entry, now)
	}
	return d.effects(now)
}

// Tick does everything that is due at now. Afterwards Next is later than now.
func (d *Detector) Tick(now time.Time) Effects {
	for e := d.table.due.First(); e != nil && !e.at.After(now); e = d.table.due.First() {
		d.advance(e, now)
	}
	return d.effects(now)
}

// Next returns when Tick has something to do; zero when there is nothing. It is never later than
// the true deadline but may be earlier. It takes O(1).
func (d *Detector) Next() time.Time {
	at := schedule.Earlier(d.conflicts.queues.rounds.next(), d.conflicts.queues.checks.next())
	if e := d.table.due.First(); e != nil {
		at = schedule.Earlier(at, e.at)
	}
	return at
}

// Asked reports that another node asks whether a holder of this one has an address. If it has a holder itself, a conflict that waits for a
// round goes before others with that node, and one whose last round was 2.5 s ago begins one: so one probe serves both nodes.
func (d *Detector) Asked(key Key, from string, now time.Time) Effects {
	e := d.table.entries[key]
	if e == nil || e.conflict == nil || !d.verifier.queues ||
		!slices.ContainsFunc(e.bindings, func(b *binding) bool { return b.counts() && b.holder.ID.Node == from }) {
		return Effects{}
	}
	if c := e.conflict; e.ticket == nil && c.state == Confirmed && now.Sub(c.round) >= recheckTime/2 {
		e.conflict.round = now
		for _, b := range e.bindings {
			if b.check != nil && b.check.phase == resting {
				d.verifier.begin(b, now)
			}
		}
		d.update(e, now)
	}
	if e.ticket != nil {
		d.conflicts.queues.wait(e, d.table.opts.Node, false, true, now)
	}
	return d.effects(now)
}

// RoundAt returns when the conflict of an address has its next round, if that is soon or waits until it is admitted; zero if neither. Then a
// probe serves that round and other nodes that ask.
func (d *Detector) RoundAt(key Key, now time.Time) (at time.Time, queued bool) {
	e := d.table.entries[key]
	switch {
	case e == nil || e.conflict == nil:
	case e.ticket != nil:
		return now, true
	case e.conflict.wake.After(now) && e.conflict.wake.Sub(now) <= awaitRequestTime:
		return e.conflict.wake, false
	}
	return time.Time{}, false
}

// maxSteps bounds how often one entry is advanced at one time: a mistake would be a busy loop.
const maxSteps = 8

// advance runs the deadlines of one entry until none is due.
func (d *Detector) advance(e *entry, now time.Time) {
	for range maxSteps {
		if e.Place == 0 || e.at.After(now) {
			return
		}
		d.step(e, now)
	}
	if e.Place != 0 && !e.at.After(now) {
		d.table.counts.Overdue++
		d.table.schedule(e, now.Add(time.Second))
	}
}

// step runs the deadlines of one entry once: what was not seen for long ends, holders that are silent are lost, the conflict follows from
// those that are left, and silent bindings are probed.
func (d *Detector) step(e *entry, now time.Time) {
	d.table.expire(e, now)
	for _, b := range slices.Clone(e.bindings) {
		d.lose(b, d.verifier.advance(b, now), now)
	}
	d.conflicts.advance(e, now)
	for _, b := range e.bindings {
		d.verifier.refresh(b, now) // last, because the conflict may have ended
	}
	d.table.settle(e, now)
}

// lose ends a binding, or what it counts for, because its holder did not answer; nothing if it did.
func (d *Detector) lose(b *binding, lost *loss, now time.Time) {
	switch {
	case lost == nil:
	case lost.unheard:
		d.table.refreshEvidence(b, now, lost.template, "")
	case lost.forwards:
		d.table.forwardsOnly(b, b.because(lost.template, ""), now)
	default:
		d.table.remove(b, lost.template, lost.arg, now)
	}
}

// update brings the conflict of a changed entry and its place in the schedule up to date.
func (d *Detector) update(e *entry, now time.Time) {
	d.conflicts.advance(e, now)
	d.table.settle(e, now)
}

// effects returns what the caller has to do since they were returned last.
func (d *Detector) effects(now time.Time) Effects {
	d.conflicts.admit(now)
	if d.verifier.probes == nil && d.conflicts.events == nil && d.table.refusal == "" { // mostly
		return Effects{}
	}
	fx := Effects{d.verifier.probes, d.conflicts.events, d.table.refusal}
	d.verifier.probes, d.conflicts.events, d.table.refusal = nil, nil, ""
	return fx
}

// Describe calls f to change the description of a holder in all its bindings and in the open conflicts of these keys, of all if there are
// none, when the caller finds a name later. f must not keep its argument; it cannot change the ID. The key is that of the binding or
// the conflict. The effects are events of confirmed conflicts.
func (d *Detector) Describe(id HolderID, f func(Key, *Holder), now time.Time, keys ...Key) Effects {
	describe := func(key Key, h *Holder) {
		if h.ID == id {
			f(key, h)
			h.ID = id
		}
	}
	for _, b := range d.table.holders[id] {
		describe(b.entry.key, &b.holder)
		if b.remote {
			b.holder.Interface = Interface{}
		}
		d.table.note(b)
	}
	for _, key := range keys {
		if e := d.table.entries[key]; e != nil && e.conflict != nil {
			d.conflicts.describe(e, describe, now)
		}
	}
	if len(keys) == 0 {
		for e := range d.conflicts.open {
			d.conflicts.describe(e, describe, now)
		}
	}
	fx := d.effects(now)
	slices.SortStableFunc(fx.Events, func(a, b Event) int { return a.Conflict.Key.Compare(b.Conflict.Key) })
	return fx
}

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
	switch {
	case b == nil:
	case p.Purpose == Refresh:
		if d.verifier.refreshed(b, r, now); r.Outcome != Sent { // which moves no deadline
			d.table.settle(e, now)
		}
	case r.Outcome == Gone && p.Purpose != "":
		return d.Withdraw(p.Key, p.Holder, r.Reason, now)
	case r.Outcome == Gone && b.remote && b.check == nil && b.has(): // it is known for what [Detector.Twins] says only
		return d.Withdraw(p.Key, p.Holder, r.Reason, now)
	case r.Outcome == Gone && b.remote && b.check != nil && b.check.phase != probing:
		d.verifier.start(b, now)
		d.update(e, now)
	case b.check == nil || b.check.phase != probing || p.Round != 0 && p.Round != b.check.id: // the round is over
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
	return d.effects(now)
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
		d.verifier.begin(b, now)
		d.update(b.entry, now)
	}
	return d.effects(now)
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

// SetShared declares which keys may have many holders (anycast and virtual addresses). Their
// bindings are kept and shown, but raise no suspicion. An open conflict of such a key ends at once. A
// key that is not shared any more is suspected at once if it has two holders. shared must not call
// the Detector, and its results must not change until the next SetShared; nil declares none.
func (d *Detector) SetShared(shared func(Key) bool, now time.Time) Effects {
	d.table.shared = shared
	for _, key := range slices.SortedFunc(maps.Keys(d.table.entries), Key.Compare) {
		e := d.table.entries[key]
		if e == nil {
			continue // it was forgotten when the conflict of another key ended
		}
		was := e.shared
		e.shared = shared != nil && shared(key)
		if e.shared == was {
			continue
		}
		for _, b := range e.bindings {
			if e.shared {
				d.table.withdraw(b)
			}
			d.table.note(b)
		}
		d.conflicts.endShared(e, now)
		d.update(e, now)
	}
	return d.effects(now)
}

// SetLimits changes the limits of the same names in [Options]; zero or negative is the default. It
// shortens the history at once. Bindings that exceed a lower limit stay until new ones replace them.
func (d *Detector) SetLimits(maxBindings, maxPerInterface, maxHistory int) {
	o := &d.table.opts
	o.MaxBindings, o.MaxPerInterface, o.MaxHistory = maxBindings, maxPerInterface, maxHistory
	*o = o.withDefaults()
	d.conflicts.trim()
	d.table.trimIdle()
}
