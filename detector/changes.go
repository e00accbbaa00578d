package detector

import (
	"container/list"
	"slices"
)

// Change says that a lease has to be written or withdrawn: what happened to a local binding that
// counts.
type Change struct {
	// Binding is as it is now or, when it ended, as it was.
	Binding Binding
	// Ended: it does not count any more, or its key was declared shared. Reason is a clause for
	// people.
	Ended  bool
	Reason string
	// Occurrences is as in [Sighting].
	Occurrences int
	// OtherNodes are the nodes of the remote holders of the key when it ended, in order.
	OtherNodes []string
}

// changes are the bindings that differ from what TakeChanges returned last.
type changes struct {
	list list.List              // of *binding
	gone map[bindingID]*binding // those that are not in the table any more
}

// bindingID names a binding, which may be gone.
type bindingID struct {
	key    Key
	holder HolderID
}

// lease is what other nodes know of a binding; zero for nothing.
type lease struct {
	mac         MAC
	evidence    Evidence
	occurrences int
}

// leasing is what TakeChanges returned last of a binding, and what it has to return next.
type leasing struct {
	last   lease
	ended  *Change       // why it ceased to count; nil unless it is leased
	change *list.Element // in changes.list
}

// lease returns what other nodes are to know of a binding.
func (b *binding) lease() lease {
	if b.remote || !b.counts() || b.entry.shared {
		return lease{}
	}
	return lease{b.holder.MAC, b.evidence, b.entry.occurrences}
}

// TakeChanges returns the changes since the last call, each holder of a key once, as it is now, in
// the order of their first change. They are local bindings that began to count or do not any more,
// or whose MAC, evidence or occurrences changed. Keys that are declared shared have none.
func (d *Detector) TakeChanges() []Change {
	if d.changes.list.Len() == 0 {
		return nil
	}
	var list []Change
	for el := d.changes.list.Front(); el != nil; el = el.Next() {
		b := el.Value.(*binding)
		now := b.lease()
		switch {
		case now == b.leasing.last:
		case now != lease{}:
			list = append(list, Change{Binding: b.public(), Occurrences: now.occurrences})
		default:
			b.leasing.ended.Occurrences = b.entry.occurrences
			list = append(list, *b.leasing.ended)
		}
		b.leasing = leasing{last: now}
	}
	d.changes.list.Init()
	clear(d.changes.gone)
	return list
}

// Occurrences returns how many conflicts of a key are resolved, as far as is known.
func (d *Detector) Occurrences(key Key) int {
	if e := d.entries[key]; e != nil {
		return e.occurrences
	}
	return 0
}

// LocalHolders returns the local bindings of a key that count, the oldest first; none if the key is
// declared shared.
func (d *Detector) LocalHolders(key Key) []Binding {
	e := d.entries[key]
	if e == nil || e.shared {
		return nil
	}
	var list []Binding
	for _, b := range e.counting() {
		if !b.remote {
			list = append(list, b.public())
		}
	}
	return list
}

// noteChange puts a binding on the list of changes if its lease differs from the last one.
func (d *Detector) noteChange(b *binding) {
	if b.leasing.change == nil && b.lease() != b.leasing.last {
		b.leasing.change = d.changes.list.PushBack(b)
	}
}

// noteEnd records why a leased binding does not count any more, while it still has its last state.
func (d *Detector) noteEnd(b *binding, why string) {
	if b.leasing.last == (lease{}) {
		return
	}
	var nodes []string
	for _, o := range b.entry.bindings {
		if o.remote {
			nodes = append(nodes, o.holder.ID.Node)
		}
	}
	slices.Sort(nodes)
	b.leasing.ended = &Change{Binding: b.public(), Ended: true, Reason: why, OtherNodes: slices.Compact(nodes)}
}

// setOccurrences sets how many conflicts of a key are resolved.
func (d *Detector) setOccurrences(e *entry, n int) {
	e.occurrences = n
	for _, b := range e.bindings {
		d.noteChange(b)
	}
}

// keepEnd keeps a binding that left the table until TakeChanges has returned its end. One that was
// never returned is forgotten, so there are never more than the table had.
func (d *Detector) keepEnd(b *binding) {
	switch {
	case b.leasing.change == nil:
	case b.leasing.last == (lease{}):
		d.changes.list.Remove(b.leasing.change)
		b.leasing.change = nil
	default:
		d.changes.gone[bindingID{b.entry.key, b.holder.ID}] = b
	}
}

// takeOverLease lets a new binding continue the lease of one whose end was not returned yet.
func (d *Detector) takeOverLease(b *binding) {
	id := bindingID{b.entry.key, b.holder.ID}
	if old := d.changes.gone[id]; old != nil {
		delete(d.changes.gone, id)
		b.leasing = old.leasing
		b.leasing.change.Value = b
	}
}
