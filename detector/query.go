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
