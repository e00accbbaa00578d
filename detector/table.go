package detector

import (
	"cmp"
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

// evictsBelow returns the rank below which bindings make room for a new one. Data must not evict suppressed
// bindings: each address of a pod that sprays sources would be suspected again.
func evictsBelow(rank int) int {
	if rank <= int(Data) {
		return min(rank, rankSuppressed)
	}
	return rank
}

// admit makes a binding for a new holder, or returns nil if a limit is reached.
func (d *Detector) admit(s *Sighting, now time.Time) *binding {
	ev := d.effectiveEvidence(d.entries[s.Key], s, now)
	if !d.makeRoom(s, rankOf(ev, ev != s.Evidence), now) {
		return nil
	}

	e, id := d.entryFor(s.Key), s.Holder.ID // after making room, which may have ended it
	if id.Node != d.opts.Node && e.remotes("") >= maxRemote {
		d.counts.Evicted[refusedKeyFull]++
		d.remove(e.unverified(), noteEvicted, refusedKeyFull, now)
	}
	b := &binding{
		entry: e, holder: s.Holder, remote: id.Node != d.opts.Node, firstSeen: s.At, atStart: s.FoundAtStart,
		refresh: refresh{jitter: jitterOf(s.Key, id, bindingTTL/20)}, // 10 % of half the TTL
		rank:    -1,
	}
	if plausible(s.FirstSeen) {
		b.firstSeen = schedule.Earlier(b.firstSeen, s.FirstSeen)
	}
	if others := d.holders[id]; len(others) > 0 && b.holder.Pod == (Pod{}) {
		b.holder.describePod(&others[0].holder)
	}
	if c := e.conflict; c != nil {
		c.inherit(b)
	}
	e.bindings = append(e.bindings, b)
	d.holders[id] = append(d.holders[id], b)
	d.addSource(b, &s.Holder)
	where := " on " + cmp.Or(s.Holder.InterfaceName, "an interface")
	if b.remote {
		where = ", as its node reports"
	}
	e.record(now, id, noteFirstSeen, ev.String()+where)
	return b
}

// makeRoom reports whether there is room for a new binding of that rank. It evicts other bindings if needed.
func (d *Detector) makeRoom(s *Sighting, rank int, now time.Time) bool {
	if e := d.entries[s.Key]; e != nil && len(e.bindings) >= maxHolders &&
		!d.evict(evictable(e.bindings, rank), refusedKeyFull, now) {
		return false
	}
	if !d.makeRoomOn(s.Holder.Interface, rank, now) {
		return false
	}
	return d.size() < d.opts.MaxBindings || d.evict(d.evictableInTable(rank), refusedTableFull, now)
}

// makeRoomOn is makeRoom for one interface. No pod adds to the node's own addresses, which the caller limits.
func (d *Detector) makeRoomOn(i Interface, rank int, now time.Time) bool {
	if rank == int(Host) {
		return true
	}
	on := d.ifaces[i]
	return len(on) < d.opts.MaxPerInterface || d.evict(evictable(on, rank), refusedInterfaceFull, now)
}

func (d *Detector) size() int {
	n := 0
	for i := range d.ranks {
		n += d.ranks[i].Len()
	}
	return n
}

// evictable returns the binding that makes room for a new one of that rank, or nil: of the bindings with the
// lowest rank, the one that was not seen for longest. Bindings in an open conflict stay.
func evictable(list []*binding, rank int) *binding {
	var v *binding
	for _, b := range list {
		if b.rank >= evictsBelow(rank) || b.entry.conflict != nil {
			continue
		}
		if v == nil || b.rank < v.rank || b.rank == v.rank && b.lastSeen().Before(v.lastSeen()) {
			v = b
		}
	}
	return v
}

// evictableInTable is [evictable] for the whole table.
func (d *Detector) evictableInTable(rank int) *binding {
	const limit = 64 // of bindings that are tried, because many may be in conflicts
	for r := range evictsBelow(rank) {
		n := 0
		for el := d.ranks[r].Front(); el != nil && n < limit; el = el.Next() {
			if b := el.Value.(*binding); b.entry.conflict == nil {
				return b
			}
			n++
		}
	}
	return nil
}

// evict removes v and reports true. If v is nil, it counts that the new binding was refused.
func (d *Detector) evict(v *binding, reason string, now time.Time) bool {
	if v == nil {
		d.counts.Refused[reason]++
		return false
	}
	d.counts.Evicted[reason]++
	d.remove(v, noteEvicted, reason, now)
	d.finish(v.entry, now)
	return true
}

// addSource adds an interface to a binding. If there are too many, it replaces the one that was not seen for
// longest.
func (d *Detector) addSource(b *binding, h *Holder) *source {
	if len(b.sources) == maxSources {
		stalest := slices.MinFunc(b.sources, func(x, y source) int { return x.seen().Compare(y.seen()) })
		d.dropSource(b, stalest.iface)
	}
	b.sources = append(b.sources, source{iface: h.Interface, name: h.InterfaceName, mac: h.MAC})
	if !b.remote {
		d.ifaces[h.Interface] = append(d.ifaces[h.Interface], b)
	}
	return &b.sources[len(b.sources)-1]
}

func (d *Detector) dropSource(b *binding, i Interface) {
	d.noteEnded(b, i)
	b.sources = slices.DeleteFunc(b.sources, func(s source) bool { return s.iface == i })
	dropFrom(d.ifaces, i, b)
}

// remove takes a binding out of the table and records why. The caller updates the entry.
func (d *Detector) remove(b *binding, t *template, reason string, now time.Time) {
	e, id := b.entry, b.holder.ID
	e.record(now, id, t, reason)
	last := former{Binding: b.public(), here: b.isLocal() && !b.counted.IsZero()}
	if t == noteGone {
		last.LastSeen = now
		if b.isLocal() {
			last.ends = 1
		}
	}
	d.setEvidence(b, 0, now, b.because(t, reason))
	e.bindings = slices.DeleteFunc(e.bindings, func(x *binding) bool { return x == b })
	dropFrom(d.holders, id, b)
	e.addFormer(last)
	for i := range b.sources {
		dropFrom(d.ifaces, b.sources[i].iface, b)
	}
}

// dropFrom removes b from the list of one key of an index.
func dropFrom[K comparable](index map[K][]*binding, k K, b *binding) {
	index[k] = slices.DeleteFunc(index[k], func(x *binding) bool { return x == b })
	if len(index[k]) == 0 {
		delete(index, k)
	}
}

// retire handles an entry without bindings. It is kept for its story while the history has a
// conflict of it, then as one of the last MaxHistory stories. Without a story it is forgotten.
func (d *Detector) retire(e *entry) {
	d.due.Remove(e)
	switch {
	case e.kept > 0 || e.idle != nil:
		return
	case !e.hasStory:
		delete(d.entries, e.key)
		return
	}
	e.idle = d.idle.PushBack(e)
	d.trimIdle()
}

func (d *Detector) trimIdle() {
	for d.idle.Len() > d.opts.MaxHistory {
		oldest := d.idle.Remove(d.idle.Front()).(*entry)
		delete(d.entries, oldest.key)
	}
}

// entryFor returns the entry of a key, a new one if there is none.
func (d *Detector) entryFor(key Key) *entry {
	e := d.entries[key]
	if e == nil {
		e = &entry{key: key, shared: d.shared != nil && d.shared(key)}
		d.entries[key] = e
	}
	if e.idle != nil {
		d.idle.Remove(e.idle)
		e.idle = nil
	}
	return e
}
