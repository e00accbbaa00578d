package detector

import (
	"container/list"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// Ranks order the bindings by their value when the table is full. The rank of a binding that counts is its
// evidence.
const (
	rankForwarded  = 0
	rankSuppressed = int(Forwarded) // forwarded because it did not answer
	ranks          = int(Host) + 1
)

func rankOf(e Evidence, suppressed bool) int {
	if e == Forwarded && !suppressed {
		return rankForwarded
	}
	return int(e)
}

// table has the bindings of one node: who has which address, and on what evidence. It must not know when a conflict begins or
// ends: it spares the holders of an open one when it makes room.
type table struct {
	changes
	opts Options

	entries map[Key]*entry
	holders map[HolderID][]*binding
	ifaces  map[Interface][]*binding
	ranks   [ranks]list.List // of *binding, least recently seen first
	remotes [Host + 1]int    // bindings by evidence; index 0 is not used
	idle    list.List        // of *entry: stories without bindings, oldest first
	due     schedule.Schedule[*entry]

	shared  func(Key) bool // nil: no key is
	counts  Counts         // Refused, Evicted, Suppressed and Overdue
	refusal string         // why the last sighting was dropped
}

// refuse counts a sighting that is dropped.
func (t *table) refuse(reason string) {
	t.counts.Refused[reason]++
	t.refusal = reason
}

// addSource adds an interface to a binding. If there are too many, it replaces the one that was not seen for
// longest.
func (t *table) addSource(b *binding, h *Holder) *source {
	if len(b.sources) == maxSources {
		stalest := slices.MinFunc(b.sources, func(x, y source) int { return x.seen().Compare(y.seen()) })
		t.dropSource(b, stalest.iface)
		t.counts.Evicted[evictedSource]++
	}
	b.sources = append(b.sources, source{iface: h.Interface, name: h.InterfaceName, mac: h.MAC})
	if !b.remote {
		t.ifaces[h.Interface] = append(t.ifaces[h.Interface], b)
	}
	return &b.sources[len(b.sources)-1]
}

func (t *table) dropSource(b *binding, i Interface) {
	t.forgotten(b, i)
	b.sources = slices.DeleteFunc(b.sources, func(s source) bool { return s.iface == i })
	dropFrom(t.ifaces, i, b)
}

// remove takes a binding out of the table and records why. The caller updates the entry.
func (t *table) remove(b *binding, n *template, reason string, now time.Time) {
	e, id := b.entry, b.holder.ID
	e.record(now, id, n, reason)
	last := former{Binding: b.public(), here: b.isLocal() && !b.counted.IsZero()}
	if n == noteGone {
		last.LastSeen = now
		if b.isLocal() {
			last.ends = 1
		}
	}
	t.setEvidence(b, 0, now, b.because(n, reason))
	e.bindings = slices.DeleteFunc(e.bindings, func(x *binding) bool { return x == b })
	dropFrom(t.holders, id, b)
	e.addFormer(last)
	for i := range b.sources {
		dropFrom(t.ifaces, b.sources[i].iface, b)
	}
}

// setEvidence changes the evidence of a binding; nothing else does. If the binding does not count any more, why is the reason.
func (t *table) setEvidence(b *binding, ev Evidence, now time.Time, why string) {
	was := b.evidence
	if was >= Claimed && ev < Claimed {
		t.withdraw(b)
		if b.entry.conflict != nil {
			b.entry.ceased = append(b.entry.ceased, ceased{b, b.public(), why})
		}
		if b.check != nil {
			b.check.unpair()
		}
		b.check, b.counted = nil, time.Time{}
	}
	if ev == 0 || was >= Claimed && ev < Claimed {
		for i := range b.sources {
			t.forgotten(b, b.sources[i].iface)
		}
	}
	b.evidence = ev
	if b.remote {
		t.remotes[was]--
		t.remotes[ev]++
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
		t.ranks[b.rank].Remove(b.elem)
		b.elem = nil
	}
	if ev != 0 {
		b.rank = rankOf(ev, b.entry.penalties.of(b.holder.ID) != nil)
		b.elem = t.ranks[b.rank].PushBack(b)
	}
	t.note(b)
}

// dropFrom removes b from the list of one key of an index.
func dropFrom[K comparable](index map[K][]*binding, k K, b *binding) {
	index[k] = slices.DeleteFunc(index[k], func(x *binding) bool { return x == b })
	if len(index[k]) == 0 {
		delete(index, k)
	}
}

// dropRemote forgets the remote holders of an address that no local holder has any more. Their nodes
// handle the rest of the conflict.
func (t *table) dropRemote(e *entry, now time.Time) {
	if e.conflict != nil || e.remotes("") == 0 || e.hasLocal() {
		return
	}
	for _, b := range slices.Clone(e.bindings) {
		if b.remote {
			t.remove(b, noteNotNeeded, "", now)
		}
	}
}

// settle ends a change of an entry: it sets the next deadline. An entry without bindings and conflict is kept if it has a story, and
// otherwise forgotten.
func (t *table) settle(e *entry, now time.Time) {
	t.dropRemote(e, now)
	t.countSuppressed(e)
	e.ceased = nil
	if len(e.bindings) == 0 && e.conflict == nil {
		t.retire(e)
		return
	}
	t.schedule(e, e.next(now))
}

// schedule sets the next deadline of an entry.
func (t *table) schedule(e *entry, at time.Time) {
	if e.Place == 0 || !e.at.Equal(at) {
		e.at = at
		t.due.Set(e)
	}
}

// countSuppressed counts each reason for which no suspicion is raised when it begins to apply.
func (t *table) countSuppressed(e *entry) {
	var counting, pods int
	for _, b := range e.bindings {
		if b.counts() {
			counting++
			if b.evidence != Host {
				pods++
			}
		}
	}
	reason := ""
	switch two := counting >= 2 && pods > 0; {
	case two && e.shared:
		reason = suppressedShared
	case !two && e.conflict == nil && counting > 0 && counting < len(e.bindings):
		reason = suppressedForwarded
	}
	if reason != "" && reason != e.suppressed {
		t.counts.Suppressed[reason]++
	}
	e.suppressed = reason
}

// retire handles an entry without bindings. It is kept for its story while the history has a
// conflict of it, then as one of the last MaxHistory stories. Without a story it is forgotten.
func (t *table) retire(e *entry) {
	t.due.Remove(e)
	switch {
	case e.kept > 0 || e.idle != nil:
		return
	case !e.hasStory:
		delete(t.entries, e.key)
		return
	}
	e.idle = t.idle.PushBack(e)
	t.trimIdle()
}

func (t *table) trimIdle() {
	for t.idle.Len() > t.opts.MaxHistory {
		oldest := t.idle.Remove(t.idle.Front()).(*entry)
		delete(t.entries, oldest.key)
	}
}

// entryFor returns the entry of a key, a new one if there is none.
func (t *table) entryFor(key Key) *entry {
	e := t.entries[key]
	if e == nil {
		e = &entry{key: key, shared: t.shared != nil && t.shared(key)}
		t.entries[key] = e
	}
	if e.idle != nil {
		t.idle.Remove(e.idle)
		e.idle = nil
	}
	return e
}
