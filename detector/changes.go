package detector

import (
	"slices"
)

// Change is what happened to a local binding that counts, for those who tell other nodes
// of it.
type Change struct {
	// Binding is as it is now or, when it ended, was at last.
	Binding Binding
	// Ended: it does not count any more, or its key was declared shared; Reason is a
	// short clause for people.
	Ended  bool
	Reason string
	// Episodes counts the resolved conflicts of the key.
	Episodes int
	// Rivals are the nodes of the remote holders of the key when it ended, in order.
	Rivals []string
}

// claim is what other nodes are told of a binding; zero for nothing.
type claim struct {
	mac      MAC
	evidence Evidence
	episodes int
}

// claimant names a local binding, also when it is gone.
type claimant struct {
	key Key
	id  HolderID
}

// claim returns what others are to be told of a binding.
func (b *binding) claim() claim {
	if b.remote || !b.counts() || b.entry.shared {
		return claim{}
	}
	return claim{b.holder.MAC, b.evidence, b.entry.episode}
}

// TakeChanges returns what happened to local bindings since the last call: those that
// began to count, or whose MAC, evidence or episodes changed, and those that ceased to. A
// holder of a key comes once, as it is now, in the order in which they first changed.
// Keys that are declared shared have none.
func (d *Detector) TakeChanges() []Change {
	if d.changed.Len() == 0 {
		return nil
	}
	var list []Change
	for el := d.changed.Front(); el != nil; el = el.Next() {
		b := el.Value.(*binding)
		now := b.claim()
		switch {
		case now == b.told:
		case now != claim{}:
			list = append(list, Change{Binding: b.public(), Episodes: now.episodes})
		default:
			b.ended.Episodes = b.entry.episode
			list = append(list, *b.ended)
		}
		b.told, b.ended, b.changed = now, nil, nil
	}
	d.changed.Init()
	clear(d.gone)
	return list
}

// Episodes counts the conflicts of a key that are resolved, as far as is known.
func (d *Detector) Episodes(key Key) int {
	if e := d.entries[key]; e != nil {
		return e.episode
	}
	return 0
}

// Claims returns the local bindings of a key that count, the elder first; none if the
// key is declared shared.
func (d *Detector) Claims(key Key) []Binding {
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

// mark puts a binding on the list of changes if it is another than was told.
func (d *Detector) mark(b *binding) {
	if b.changed == nil && b.claim() != b.told {
		b.changed = d.changed.PushBack(b)
	}
}

// markEnd keeps why a binding that was told ceases to count; called while it is whole.
func (d *Detector) markEnd(b *binding, why string) {
	if b.told == (claim{}) {
		return
	}
	var nodes []string
	for _, o := range b.entry.bindings {
		if o.remote {
			nodes = append(nodes, o.holder.ID.Node)
		}
	}
	slices.Sort(nodes)
	b.ended = &Change{Binding: b.public(), Ended: true, Reason: why, Rivals: slices.Compact(nodes)}
}

// markShared follows an entry that is, or is not any more, declared shared.
func (d *Detector) markShared(e *entry) {
	for _, b := range e.bindings {
		if e.shared && b.counts() {
			d.markEnd(b, declaredShared)
		}
		d.mark(b)
	}
}

// setEpisode counts the resolved conflicts of a key.
func (d *Detector) setEpisode(e *entry, n int) {
	e.episode = n
	for _, b := range e.bindings {
		d.mark(b)
	}
}

// outlive keeps a binding that left the table until its end is taken. One that nobody
// was told of leaves no trace, so that there are never more than the table had.
func (d *Detector) outlive(b *binding) {
	switch {
	case b.changed == nil:
	case b.told == (claim{}):
		d.changed.Remove(b.changed)
		b.changed = nil
	default:
		d.gone[claimant{b.entry.key, b.holder.ID}] = b
	}
}

// succeed lets a new binding take the place of one whose end was not taken yet.
func (d *Detector) succeed(b *binding) {
	if b.remote || len(d.gone) == 0 {
		return
	}
	who := claimant{b.entry.key, b.holder.ID}
	old := d.gone[who]
	if old == nil {
		return
	}
	delete(d.gone, who)
	b.told, b.ended, b.changed = old.told, old.ended, old.changed
	b.changed.Value = b
}
