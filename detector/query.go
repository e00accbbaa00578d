package detector

import (
	"cmp"
	"slices"
)

// Bindings returns the bindings that keep accepts (nil accepts all), ordered by network, address
// and FirstSeen, also those of remote holders. keep must not retain its argument.
func (d *Detector) Bindings(keep func(*Binding) bool) []Binding {
	list := make([]Binding, 0, d.size())
	for _, e := range d.entries {
		for _, b := range e.bindings {
			if p := b.public(); keep == nil || keep(&p) {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b Binding) int { return cmp.Or(compareKeys(a.Key, b.Key), compareAge(a, b)) })
	return list
}

// Conflicts returns the open suspicions and conflicts by SuspectedAt and, with all, after them the
// resolved ones that are remembered, the newest first.
func (d *Detector) Conflicts(all bool) []Conflict {
	list := make([]Conflict, 0, len(d.open))
	for e := range d.open {
		list = append(list, e.conflict.public(e))
	}
	slices.SortFunc(list, compareConflicts)
	if all {
		for _, c := range slices.Backward(d.history) {
			list = append(list, c.clone())
		}
	}
	return list
}

func compareConflicts(a, b Conflict) int {
	return cmp.Or(a.SuspectedAt.Compare(b.SuspectedAt), compareKeys(a.Key, b.Key))
}

// compareAge orders the holders of a key, the oldest first.
func compareAge(a, b Binding) int {
	return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), compareHolders(a.Holder.ID, b.Holder.ID))
}

// Refusal is the reason why a sighting was dropped, or a binding evicted.
type Refusal uint8

// The reasons for a refusal.
const (
	RefusedInterfaceFull Refusal = iota + 1 // the interface has MaxPerInterface bindings
	RefusedTableFull                        // the table has MaxBindings
	RefusedKeyFull                          // the address has 64 holders
	RefusedOld                              // the sighting is older than the TTL
	RefusedInvalid                          // the sighting has no address, holder or evidence
	RefusedNoHolder                         // the holder is remote, and no local one has the address
	RefusedUnanswered                       // the holder is remote and suppressed, because it did not answer
	refusals
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
	Refused map[Refusal]uint64
	Evicted map[Refusal]uint64
	// Suspected counts the suspicions that were raised, Faded those that ended without a conflict.
	Suspected uint64
	Faded     uint64
	// Confirmed counts the confirmed conflicts, by their scope at that time, Resolved those that ended. A
	// restored conflict that a previous agent counted is counted in Resolved only.
	Confirmed map[Scope]uint64
	Resolved  uint64
	// Suppressed counts the suspicions that were not raised, by reason. A key counts once while the
	// reason applies.
	Suppressed map[Suppression]uint64
}

// StateScope is a state and scope of open conflicts.
type StateScope struct {
	State State
	Scope Scope
}

type counters struct {
	refused, evicted           [refusals]uint64
	suspected, faded, resolved uint64
	confirmed                  [PodHost + 1]uint64
	suppressed                 [suppressions]uint64
	stuck                      uint64 // deadlines that passed and stayed; 0 unless there is a bug
}

// countersOf returns where the steps of an entry's conflict are counted; those of drills are not exported.
func (d *Detector) countersOf(e *entry) *counters {
	if e.key.IsDrill() {
		return &d.drills
	}
	return &d.counters
}

// Counts returns the present figures. Its run time is linear in the number of open conflicts.
func (d *Detector) Counts() Counts {
	n := &d.counters
	c := Counts{
		Keys: d.due.Len(), Bindings: make(map[Evidence]int), Open: make(map[StateScope]int),
		Drills: map[State]int{Suspected: 0, Confirmed: 0}, History: len(d.history),
		Refused: byName[Refusal](n.refused[:]), Evicted: byName[Refusal](n.evicted[:RefusedKeyFull+1]),
		Suspected: n.suspected, Faded: n.faded, Confirmed: byName[Scope](n.confirmed[:]), Resolved: n.resolved,
		Suppressed: byName[Suppression](n.suppressed[:]),
	}
	for ev := Forwarded; ev <= Host; ev++ {
		c.Bindings[ev] = d.ranks[rankOf(ev, true)].Len() - d.remotes[ev]
		c.Remote += d.remotes[ev]
	}
	c.Bindings[Forwarded] += d.ranks[rankForwarded].Len()
	for s := range c.Confirmed {
		c.Open[StateScope{Suspected, s}], c.Open[StateScope{Confirmed, s}] = 0, 0
	}
	for e := range d.open {
		p := e.conflict.public(e)
		if p.Key.IsDrill() {
			c.Drills[p.State]++
			continue
		}
		c.Open[StateScope{p.State, p.Scope}]++
	}
	return c
}

// Refusals counts the sightings that were dropped, by [Refusal].
type Refusals [refusals]uint64

// Refused returns the same counts as [Detector.Counts], without its other work.
func (d *Detector) Refused() Refusals { return d.counters.refused }

// byName makes a map of counters; index 0 has no name.
func byName[E enum](counters []uint64) map[E]uint64 {
	m := make(map[E]uint64)
	for i, n := range counters[1:] {
		m[E(i+1)] = n
	}
	return m
}

// Holds reports whether the holder has a binding of the key that supports a suspicion.
func (d *Detector) Holds(key Key, id HolderID) bool {
	b := d.entries[key].find(id)
	return b != nil && b.counts()
}
