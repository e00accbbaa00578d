package detector

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Bindings returns the bindings that keep accepts (nil accepts all), ordered by network, address
// and FirstSeen, also those of remote holders. keep must not retain its argument.
func (d *Detector) Bindings(keep func(*Binding) bool) []Binding {
	list := make([]Binding, 0, d.table.size())
	for _, e := range d.table.entries {
		for _, b := range e.bindings {
			if p := b.public(); keep == nil || keep(&p) {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b Binding) int { return cmp.Or(a.Key.Compare(b.Key), CompareAge(a, b)) })
	return list
}

// Conflicts returns the open suspicions and conflicts by SuspectedAt and, with all, after them the
// resolved ones that are remembered, the newest first.
func (d *Detector) Conflicts(all bool) []Conflict {
	list := make([]Conflict, 0, len(d.conflicts.open))
	for e := range d.conflicts.open {
		list = append(list, e.conflict.public(e))
	}
	slices.SortFunc(list, compareConflicts)
	if all {
		for _, c := range slices.Backward(d.conflicts.history.list) {
			list = append(list, c.clone())
		}
	}
	return list
}

func compareConflicts(a, b Conflict) int {
	return cmp.Or(a.SuspectedAt.Compare(b.SuspectedAt), a.Key.Compare(b.Key))
}

// CompareAge orders the holders of a key, the oldest first.
func CompareAge(a, b Binding) int {
	return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), a.Holder.ID.Compare(b.Holder.ID))
}

// The reasons for which a sighting is dropped or, the first three, a binding is evicted.
const (
	refusedInterfaceFull = "interface full" // the interface has MaxPerInterface bindings
	refusedTableFull     = "table full"     // the table has MaxBindings
	refusedKeyFull       = "key full"       // the address has 64 holders
	refusedOld           = "older than the TTL"
	refusedInvalid       = "invalid"        // the sighting has no address, holder or evidence
	refusedNoHolder      = "no holder here" // the holder is remote, and no local one has the address
	refusedUnanswered    = "unanswered"     // the holder is remote and suppressed, because it did not answer
)

// The reasons why two holders raise no suspicion.
const (
	suppressedShared    = "shared"    // the key was declared shared, see [Detector.SetShared]
	suppressedForwarded = "forwarded" // all but one of the holders only forward
)

// Counts are figures for metrics. Every map has an entry for each of its possible keys, also when
// it is zero.
type Counts struct {
	// Keys counts the addresses with a binding or an open conflict, Bindings the local bindings by
	// evidence, Remote the bindings of holders on other nodes.
	Keys     int
	Bindings map[Evidence]int
	Remote   int
	// Open counts the present suspicions and conflicts, Drills those that are drills. No other count of conflicts or suspicions
	// includes drills.
	Open   map[StateScope]int
	Drills map[State]int
	// History is the number of resolved conflicts that are remembered.
	History int

	// The following only grow. Refused counts the sightings that were dropped, Evicted the bindings
	// that were removed to make room for others, both by reason.
	Refused map[string]uint64
	Evicted map[string]uint64
	// Suspected counts the suspicions that were raised, Faded those that ended without a conflict.
	Suspected uint64
	Faded     uint64
	// Confirmed counts the confirmed conflicts, by their scope at that time, Resolved those that ended. A
	// restored conflict that a previous agent counted is counted in Resolved only.
	Confirmed map[Scope]uint64
	Resolved  uint64
	// Suppressed counts the suspicions that were not raised, by reason. A key counts once while the
	// reason applies.
	Suppressed map[string]uint64
	// Overdue counts deadlines that were still due when all was done: 0, unless the detector has a fault.
	Overdue uint64
}

// StateScope is a state and scope of open conflicts.
type StateScope struct {
	State State
	Scope Scope
}

func newCounts() Counts {
	return Counts{
		Refused: map[string]uint64{
			refusedInterfaceFull: 0, refusedTableFull: 0, refusedKeyFull: 0,
			refusedOld: 0, refusedInvalid: 0, refusedNoHolder: 0, refusedUnanswered: 0,
		},
		Evicted:    map[string]uint64{refusedInterfaceFull: 0, refusedTableFull: 0, refusedKeyFull: 0},
		Confirmed:  map[Scope]uint64{SameNode: 0, CrossNode: 0, PodHost: 0},
		Suppressed: map[string]uint64{suppressedShared: 0, suppressedForwarded: 0},
	}
}

// Counts returns the present figures. Its run time is linear in the number of open conflicts.
func (d *Detector) Counts() Counts {
	t, l := d.table, d.conflicts
	c := l.counts
	c.Refused, c.Evicted, c.Suppressed = maps.Clone(t.counts.Refused), maps.Clone(t.counts.Evicted), maps.Clone(t.counts.Suppressed)
	c.Confirmed, c.Overdue = maps.Clone(c.Confirmed), t.counts.Overdue
	c.Keys, c.History = t.due.Len(), len(l.history.list)
	c.Bindings, c.Open, c.Drills = make(map[Evidence]int), make(map[StateScope]int), map[State]int{Suspected: 0, Confirmed: 0}
	for ev := Forwarded; ev <= Host; ev++ {
		c.Bindings[ev] = t.ranks[rankOf(ev, true)].Len() - t.remotes[ev]
		c.Remote += t.remotes[ev]
	}
	c.Bindings[Forwarded] += t.ranks[rankForwarded].Len()
	for s := range c.Confirmed {
		c.Open[StateScope{Suspected, s}], c.Open[StateScope{Confirmed, s}] = 0, 0
	}
	for e := range l.open {
		p := e.conflict.public(e)
		if p.IsDrill() {
			c.Drills[p.State]++
			continue
		}
		c.Open[StateScope{p.State, p.Scope}]++
	}
	return c
}

// Refused returns the same counts as [Detector.Counts], without its other work.
func (d *Detector) Refused() map[string]uint64 { return maps.Clone(d.table.counts.Refused) }

// Holds reports whether the holder has a binding of the key that supports a suspicion.
func (d *Detector) Holds(key Key, id HolderID) bool {
	b := d.table.entries[key].find(id)
	return b != nil && b.counts()
}

// SuppressedUntil returns until when a holder is not to be probed again, because it announced the address
// and did not answer in a round; zero for at once.
func (d *Detector) SuppressedUntil(key Key, id HolderID) time.Time {
	if e := d.table.entries[key]; e != nil {
		if p := e.penalties.of(id); p != nil && p.level > 0 {
			return p.until()
		}
	}
	return time.Time{}
}

// LocalHolders returns the local bindings of a key that count, the oldest first, and the number of resolved conflicts of
// the key that this node knows of. There are no bindings if the key is declared shared.
func (d *Detector) LocalHolders(key Key) (list []Binding, occurrences int) {
	e := d.table.entries[key]
	if e == nil || e.shared {
		return nil, 0
	}
	for _, b := range e.counting() {
		if !b.remote {
			p := b.public()
			p.Life = b.life
			list = append(list, p)
		}
	}
	return list, e.occurrences
}
