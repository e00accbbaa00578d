package detector

import (
	"container/list"
	"slices"
)

// Change tells the caller to write or withdraw the lease of a local binding.
type Change struct {
	// Binding is the present binding or, if it ended, the last state of the binding.
	Binding Binding
	// Ended: the binding does not count any more, or its key was declared shared. Reason is a clause
	// for people.
	Ended  bool
	Reason string
	// Occurrences is the number of resolved conflicts of the key.
	Occurrences int
	// OtherNodes are the nodes of the remote holders of the key when it ended, in order.
	OtherNodes []string
}

// Ended says that a local binding ended, or does not count any more, and what was seen on Interface is
// forgotten. A holder that was seen on several interfaces has one for each of them.
type Ended struct {
	Key       Key
	Holder    HolderID
	Interface Interface
}

// changes has what the caller has not taken yet.
type changes struct {
	list  list.List              // of *binding that differ from what TakeChanges returned last
	gone  map[bindingID]*binding // the bindings in list that are not in the table any more
	ended []Ended
}

// bindingID identifies a binding, which may be gone.
type bindingID struct {
	key    Key
	holder HolderID
}

// lease is what other nodes know of a binding. The zero value means that they know nothing.
type lease struct {
	mac         MAC
	evidence    Evidence
	occurrences int
}

// leasing has what TakeChanges returned last about a binding, and what it has to return next.
type leasing struct {
	last   lease
	ended  *Change       // why the binding ceased to count; nil unless it is leased
	change *list.Element // in changes.list
}

// lease returns what other nodes have to know of a binding.
func (b *binding) lease() lease {
	if b.remote || !b.counts() || b.entry.shared {
		return lease{}
	}
	return lease{b.holder.MAC, b.evidence, b.entry.occurrences}
}

// TakeChanges returns the local bindings that changed since the last call: they began to count, ceased
// to count, or their MAC, evidence or occurrences changed. Each is returned once, as it is now, in the
// order of the first change. Bindings of shared keys are not returned.
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

// TakeEnded returns which bindings have ended since the last call, also those that never counted and those
// that have begun again. The caller must make sure that the next packet of each makes a sighting.
func (d *Detector) TakeEnded() []Ended {
	ended := d.changes.ended
	d.changes.ended = nil
	return ended
}

// noteEnded records that a binding is forgotten on one interface.
func (d *Detector) noteEnded(b *binding, i Interface) {
	if !b.remote {
		d.changes.ended = append(d.changes.ended, Ended{b.entry.key, b.holder.ID, i})
	}
}

// Occurrences returns how many resolved conflicts of a key this node knows of.
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

// noteChange adds a binding to the changes if its lease differs from the last one.
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

// keepEnd keeps a binding that left the table until TakeChanges has returned its end. If TakeChanges never
// returned the binding, it is forgotten, so there are never more of them than the table had bindings.
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
