package judge

import (
	"fmt"
	"slices"
	"time"
)

// confirmation is a confirmed conflict that is new in an agent's reports. The agent confirmed it
// between from and to.
type confirmation struct {
	node     string
	conflict Conflict
	from, to time.Duration
}

// checkConfirmation checks a new confirmation.
func (j *Judge) checkConfirmation(a *address, c confirmation) {
	if what := j.invented(a, c); what != "" {
		j.find(Invented, c.node, c.conflict, c.to, what)
	} else if what := j.wrong(a, c, nil); what != "" {
		j.find(Wrong, c.node, c.conflict, c.to, what)
	}
}

// checkPolled checks a confirmed conflict in a poll for which there was no event.
func (j *Judge) checkPolled(n *node, o *Open, c Conflict) {
	if _, known := n.confirmed[c.ID]; known {
		return
	}
	var up time.Duration
	if len(n.outages) > 0 {
		last := n.outages[len(n.outages)-1]
		if o.From < last.until {
			return // from the agent before the restart, or it is unknown from which one
		}
		up = last.until
	}
	n.confirmed[c.ID] = c.Holders
	_, restored := n.previous[c.ID]
	if restored || up > 0 && n.polled <= up {
		// The time of its confirmation is unknown, and its holders may have ended since.
		if a := j.addresses[c.IP]; a == nil || !slices.ContainsFunc(a.pairs, func(p *pair) bool {
			from, until := p.possible()
			return p.namedIn(c) && from <= min(until, o.To)
		}) {
			j.find(Invented, o.Node, c, o.To, "restored, and no two of these ever had the address at the same time")
		}
		return
	}
	// It was confirmed since the last poll.
	j.checkConfirmation(j.addresses[c.IP], confirmation{node: o.Node, conflict: c, from: min(o.From, n.polled), to: o.To})
}

// fresh is the earliest end of an overlap that an agent may still confirm.
func (j *Judge) fresh(c confirmation) time.Duration {
	fresh := c.from - j.limits.Fresh
	return fresh - j.StalledFor(fresh, c.to)
}

// invented is why no two holders can have shared the address for long enough, and recently enough, for a
// confirmation; empty if two can.
func (j *Judge) invented(a *address, c confirmation) string {
	if a == nil {
		return "no holder ever had the address"
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
		return fmt.Sprintf("they shared it for at most %s", seconds(longest))
	}
	return ""
}

// wrong is what is wrong with the new holders of a confirmed conflict; empty if nothing is.
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
