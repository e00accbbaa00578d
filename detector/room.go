package detector

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// evictsBelow returns the rank below which bindings make room for a new one. Data must not evict suppressed
// bindings: each address of a pod that sprays sources would be suspected again.
func evictsBelow(rank int) int {
	if rank <= int(Data) {
		return min(rank, rankSuppressed)
	}
	return rank
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
		ranked:  ranked{rank: -1},
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
		t.refuse(reason)
		return false
	}
	t.counts.Evicted[reason]++
	t.remove(v, noteEvicted, reason, now)
	t.settle(v.entry, now)
	return true
}

// plausible reports whether a time is late enough to come from a clock that was set.
func plausible(t time.Time) bool { return t.Year() >= 2000 }

// jitterOf returns a share of -1 to 1 of span that is always the same for a binding.
func jitterOf(key Key, id HolderID, span time.Duration) time.Duration {
	h := fnv.New64a()
	b := append(key.IP.AsSlice(), key.Network+id.Node...)
	b = binary.LittleEndian.AppendUint64(b, id.Netns)
	b = binary.LittleEndian.AppendUint32(b, id.Ifindex)
	h.Write(binary.LittleEndian.AppendUint32(b, id.Generation))
	// The middle bits: the low bits of FNV depend too much on the last bytes.
	share := float64(h.Sum64()>>16&0xffffff)/0x800000 - 1
	return time.Duration(share * float64(span))
}
