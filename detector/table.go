package detector

import (
	"cmp"
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

// evictsBelow returns the rank below which bindings make room for a new one. Data must not evict suppressed
// bindings: each address of a pod that sprays sources would be suspected again.
func evictsBelow(rank int) int {
	if rank <= int(Data) {
		return min(rank, rankSuppressed)
	}
	return rank
}

// table has the bindings of one node: who has which address, and on what evidence. It must not know what two holders of an address are,
// nor who is asked.
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

	shared func(Key) bool // nil: no key is
	counts Counts         // Refused, Evicted and Suppressed
}

// admit makes a binding for a new holder, or returns nil if a limit is reached.
func (t *table) admit(s *Sighting, now time.Time) *binding {
	ev := t.entries[s.Key].effective(s, now)
	if !t.makeRoom(s, rankOf(ev, ev != s.Evidence), now) {
		return nil
	}

	e, id := t.entryFor(s.Key), s.Holder.ID // after making room, which may have ended it
	if id.Node != t.opts.Node && e.remotes("") >= maxRemote {
		t.counts.Evicted[refusedKeyFull]++
		t.remove(e.unverified(), noteEvicted, refusedKeyFull, now)
	}
	b := &binding{
		entry: e, holder: s.Holder, remote: id.Node != t.opts.Node, firstSeen: s.At, atStart: s.FoundAtStart,
		refresh: refresh{jitter: jitterOf(s.Key, id, bindingTTL/20)}, // 10 % of half the TTL
		rank:    -1,
	}
	if plausible(s.FirstSeen) {
		b.firstSeen = schedule.Earlier(b.firstSeen, s.FirstSeen)
	}
	if others := t.holders[id]; len(others) > 0 && b.holder.Pod == (Pod{}) {
		b.holder.describePod(&others[0].holder)
	}
	e.bindings = append(e.bindings, b)
	t.holders[id] = append(t.holders[id], b)
	t.addSource(b, &s.Holder)
	where := " on " + cmp.Or(s.Holder.InterfaceName, "an interface")
	if b.remote {
		where = ", as its node reports"
	}
	e.record(now, id, noteFirstSeen, ev.String()+where)
	return b
}

// makeRoom reports whether there is room for a new binding of that rank. It evicts other bindings if needed.
func (t *table) makeRoom(s *Sighting, rank int, now time.Time) bool {
	if e := t.entries[s.Key]; e != nil && len(e.bindings) >= maxHolders &&
		!t.evict(evictable(e.bindings, rank), refusedKeyFull, now) {
		return false
	}
	if !t.makeRoomOn(s.Holder.Interface, rank, now) {
		return false
	}
	return t.size() < t.opts.MaxBindings || t.evict(t.evictableInTable(rank), refusedTableFull, now)
}

// makeRoomOn is makeRoom for one interface. No pod adds to the node's own addresses, which the caller limits.
func (t *table) makeRoomOn(i Interface, rank int, now time.Time) bool {
	if rank == int(Host) {
		return true
	}
	on := t.ifaces[i]
	return len(on) < t.opts.MaxPerInterface || t.evict(evictable(on, rank), refusedInterfaceFull, now)
}

func (t *table) size() int {
	n := 0
	for i := range t.ranks {
		n += t.ranks[i].Len()
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
func (t *table) evictableInTable(rank int) *binding {
	const limit = 64 // of bindings that are tried, because many may be in conflicts
	for r := range evictsBelow(rank) {
		n := 0
		for el := t.ranks[r].Front(); el != nil && n < limit; el = el.Next() {
			if b := el.Value.(*binding); b.entry.conflict == nil {
				return b
			}
			n++
		}
	}
	return nil
}

// evict removes v and reports true. If v is nil, it counts that the new binding was refused.
func (t *table) evict(v *binding, reason string, now time.Time) bool {
	if v == nil {
		t.counts.Refused[reason]++
		return false
	}
	t.counts.Evicted[reason]++
	t.remove(v, noteEvicted, reason, now)
	t.settle(v.entry, now)
	return true
}

// addSource adds an interface to a binding. If there are too many, it replaces the one that was not seen for
// longest.
func (t *table) addSource(b *binding, h *Holder) *source {
	if len(b.sources) == maxSources {
		stalest := slices.MinFunc(b.sources, func(x, y source) int { return x.seen().Compare(y.seen()) })
		t.dropSource(b, stalest.iface)
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

// dropFrom removes b from the list of one key of an index.
func dropFrom[K comparable](index map[K][]*binding, k K, b *binding) {
	index[k] = slices.DeleteFunc(index[k], func(x *binding) bool { return x == b })
	if len(index[k]) == 0 {
		delete(index, k)
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

// allFormer returns the last holders on this node of the last MaxHistory keys that lost one, the last one last.
func (t *table) allFormer() (list []Binding) {
	for _, e := range t.entries {
		for _, f := range e.former {
			if f.here {
				list = append(list, f.Binding)
			}
		}
	}
	slices.SortFunc(list, func(a, b Binding) int {
		return cmp.Or(b.LastSeen.Compare(a.LastSeen), a.Key.Compare(b.Key), CompareAge(b, a))
	})
	keys := make(map[Key]bool)
	list = slices.DeleteFunc(list, func(b Binding) bool {
		if len(keys) < t.opts.MaxHistory {
			keys[b.Key] = true
		}
		return !keys[b.Key]
	})
	slices.Reverse(list)
	return list
}
