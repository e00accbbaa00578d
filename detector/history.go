package detector

import "slices"

// history has the conflicts that are resolved. It must not know whether their holders are still there.
type history struct {
	list   []resolved // oldest first
	shares map[kind]*share
}

// resolved is a conflict in the history.
type resolved struct {
	Conflict
	entry *entry
	share *share
}

// share is the part of the history that the conflicts of one kind have.
type share struct {
	kind kind
	size int // greater than 0
}

// kind is what conflicts have in common that share a part of the history: two holders, or that they are drills, which have none.
type kind [2]HolderID

// add adds a resolved conflict.
func (h *history) add(e *entry, c Conflict) {
	k := kindOf(&c)
	if h.shares[k] == nil {
		h.shares[k] = &share{kind: k}
	}
	h.shares[k].size++
	h.list = append(h.list, resolved{c.clone(), e, h.shares[k]})
	e.kept++
}

// drop drops a conflict if there are more than so many, and returns its entry.
func (h *history) drop(most int) *entry {
	if len(h.list) <= most {
		return nil
	}
	i := h.leastMissed()
	r := h.list[i]
	if r.share.size--; r.share.size == 0 {
		delete(h.shares, r.share.kind)
	}
	h.list = slices.Delete(h.list, i, i+1)
	r.entry.kept--
	return r.entry
}

// leastMissed returns the index of the conflict to drop next: the oldest one of the kind that there are most of. Two pods can make any
// number of conflicts, and anybody drills: those of others stay. The last one of a key stays while there are others of the key, because
// it has the number from which the next one is counted.
func (h *history) leastMissed() int {
	most, last := 0, -1
	for _, r := range h.list {
		most = max(most, r.share.size)
	}
	for i, r := range h.list {
		if r.share.size < most {
			continue
		}
		ofKey := func(o resolved) bool { return o.Key == r.Key }
		if r.entry.kept == 1 || slices.ContainsFunc(h.list[i+1:], ofKey) {
			return i
		}
		if last < 0 {
			last = slices.IndexFunc(h.list, ofKey)
		}
	}
	return last
}

// kindOf returns that of the oldest two holders, in any order.
func kindOf(c *Conflict) kind {
	if c.IsDrill() || len(c.Holders) < 2 {
		return kind{}
	}
	a, b := c.Holders[0].Holder.ID, c.Holders[1].Holder.ID
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	return kind{a, b}
}

// last returns the last conflict of a key, or nil.
func (h *history) last(key Key) *Conflict {
	for _, c := range slices.Backward(h.list) {
		if c.Key == key {
			return new(c.clone())
		}
	}
	return nil
}

func (c Conflict) clone() Conflict {
	c.Holders = slices.Clone(c.Holders)
	return c
}
