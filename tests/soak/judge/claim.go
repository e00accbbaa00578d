package judge

import (
	"fmt"
	"slices"
	"time"
)

// confirmation is a confirmed conflict that an agent newly told of. It confirmed it at some
// time between from and to.
type confirmation struct {
	node     string
	conflict Conflict
	from, to time.Duration
}

// checkConfirmation judges what is newly confirmed.
func (j *Judge) checkConfirmation(a *address, c confirmation) {
	if what := j.invented(a, c); what != "" {
		j.find(Invented, c.node, c.conflict, c.to, what)
	} else if what := j.wrong(a, c, nil); what != "" {
		j.find(Wrong, c.node, c.conflict, c.to, what)
	}
}

// checkPolled judges a confirmed conflict that an agent tells of when asked, and of whose
// confirmation it did not tell of its own accord.
func (j *Judge) checkPolled(n *node, o *Open, c Conflict) {
	if _, heard := n.confirmed[c.ID]; heard {
		return
	}
	var up time.Duration
	if len(n.outages) > 0 {
		last := n.outages[len(n.outages)-1]
		if o.From < last.until {
			return // said by a former agent, or before it is known who says it
		}
		up = last.until
	}
	n.confirmed[c.ID] = c.Holders
	_, former := n.previous[c.ID]
	if former || up > 0 && n.polled <= up {
		// Restored: when it was confirmed is not known. Its holders may have gone since.
		if a := j.addresses[c.IP]; a == nil || !slices.ContainsFunc(a.pairs, func(p *pair) bool {
			from, until := p.possible()
			return p.namedIn(c) && from <= min(until, o.To)
		}) {
			j.find(Invented, o.Node, c, o.To, "restored, and no two of these ever had the address at the same time")
		}
		return
	}
	// It was confirmed since the last answer.
	j.checkConfirmation(j.addresses[c.IP], confirmation{node: o.Node, conflict: c, from: min(o.From, n.polled), to: o.To})
}

// fresh is how long ago that may be what an agent confirms.
func (j *Judge) fresh(c confirmation) time.Duration {
	fresh := c.from - j.limits.Fresh
	return fresh - j.StalledFor(fresh, c.to)
}

// invented says why nobody can have had an address together with somebody else long
// enough for what an agent claims, and not long ago; empty if somebody can.
func (j *Judge) invented(a *address, c confirmation) string {
	if a == nil {
		return "nobody ever had the address"
	}
	fresh := j.fresh(c)
	longest, seen := time.Duration(0), false
	for _, p := range a.pairs {
		if !p.namedIn(c.conflict) {
			continue
		}
		from, until := p.possible()
		if until < fresh || from > c.to || until < from {
			continue
		}
		seen, longest = true, max(longest, min(until, c.to)-from)
	}
	switch {
	case !seen:
		return "no two of these had the address at the same time"
	case longest < j.limits.Overlap:
		return fmt.Sprintf("they had it together for at most %s", seconds(longest))
	}
	return ""
}

// wrong says what is wrong with the holders of a confirmed conflict that were not named
// before.
func (j *Judge) wrong(a *address, c confirmation, before []Holder) string {
	local := false
	for i, h := range c.conflict.Holders {
		local = local || h.Node == c.node
		if slices.Contains(c.conflict.Holders[:i], h) {
			return fmt.Sprintf("%v is named twice", h)
		}
		if !slices.Contains(before, h) && (a == nil || !a.mayHave(h, j.fresh(c), c.to)) {
			return fmt.Sprintf("%v does not have the address", h)
		}
	}
	if !local && before == nil {
		return "no holder is on this node"
	}
	return ""
}
