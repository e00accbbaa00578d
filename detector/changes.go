package detector

import "slices"

// Change tells the caller to write or withdraw the lease of a local binding.
type Change struct {
	// Binding is the present binding or, if it ended, the last state of the binding.
	Binding Binding
	// Ended: the binding does not count any more, or its key was declared shared. OtherNodes are the nodes
	// of the remote holders of the key at that time, in order.
	Ended      bool
	OtherNodes []string
	// Occurrences is the number of resolved conflicts of the key, unless the binding ended.
	Occurrences int
}

// Ended says that a local binding ended, or does not count any more, and what was seen on Interface is
// forgotten. A holder that was seen on several interfaces has one for each of them.
type Ended struct {
	Key       Key
	Holder    HolderID
	Interface Interface
}

// changes is what others have to know and do not know yet. It must not know why a binding has changed.
type changes struct {
	withdrawn []Change
	changed   []*binding
	ended     []Ended
}

// TakeChanges returns the local bindings that changed since the last call: first those that ceased to count, then
// those that began to count, or whose MAC, evidence or occurrences changed, each once, as it is now. Bindings of
// shared keys are not returned.
func (c *changes) TakeChanges() []Change {
	list := c.withdrawn
	for _, b := range c.changed {
		if now := b.lease(); now != b.leased {
			list = append(list, Change{Binding: b.public(), Occurrences: now.occurrences})
			b.leased = now
		}
		b.changed = false
	}
	c.withdrawn, c.changed = nil, nil
	return list
}

// TakeEnded returns which bindings have ended since the last call, also those that never counted and those
// that have begun again. The caller must make sure that the next packet of each makes a sighting.
func (c *changes) TakeEnded() []Ended {
	ended := c.ended
	c.ended = nil
	return ended
}

// forgotten notes that a binding is forgotten on one interface.
func (c *changes) forgotten(b *binding, i Interface) {
	if !b.remote {
		c.ended = append(c.ended, Ended{b.entry.key, b.holder.ID, i})
	}
}

// note adds a binding if its lease differs from the last one.
func (c *changes) note(b *binding) {
	if !b.changed && b.lease() != b.leased {
		b.changed = true
		c.changed = append(c.changed, b)
	}
}

// withdraw ends the lease of a binding that ceases to count, while it still has its last state.
func (c *changes) withdraw(b *binding) {
	if b.leased == (lease{}) {
		return
	}
	var nodes []string
	for _, o := range b.entry.bindings {
		if o.remote {
			nodes = append(nodes, o.holder.ID.Node)
		}
	}
	slices.Sort(nodes)
	c.withdrawn = append(c.withdrawn, Change{Binding: b.public(), Ended: true, OtherNodes: slices.Compact(nodes)})
	b.leased = lease{}
}

// setOccurrences sets how many conflicts of a key are resolved.
func (c *changes) setOccurrences(e *entry, n int) {
	e.occurrences = n
	for _, b := range e.bindings {
		c.note(b)
	}
}
