package judge

import (
	"fmt"
	"slices"
	"time"
)

// checkPoll checks the open conflicts of an agent at one time: missing ones, and those that should be
// over.
func (j *Judge) checkPoll(o *Open) {
	n := j.node(o.Node)
	present := make(map[string]bool, len(o.Conflicts))
	for _, c := range o.Conflicts {
		present[c.ID] = true
		if !c.Confirmed {
			j.checkSuspicion(n, o, c)
			continue
		}
		delete(n.suspects, c.ID)
		j.checkPolled(n, o, c)
		if a := j.addresses[c.IP]; a != nil {
			j.mark(a, o.Node, c, o.From)
		}
		j.checkLingering(o, c)
	}
	n.polled = max(n.polled, o.From)
	for id := range n.suspects {
		if !present[id] {
			delete(n.suspects, id)
		}
	}
	for _, a := range j.addresses {
		for _, p := range a.pairs {
			if p.of(o.Node) {
				j.checkMissing(p, o)
			}
		}
	}
}

// checkMissing checks whether an agent reports a pair that it must report.
func (j *Judge) checkMissing(p *pair, o *Open) {
	from, until := p.certain()
	if from > o.From || until < o.To { // it may be an answer of that time
		return
	}
	down, start := j.start(p, o.Node, o.From)
	d := p.obligation(o.Node)
	reported := slices.ContainsFunc(o.Conflicts, p.namedIn)
	switch {
	case reported, down:
	case d.found != 0 && d.found < o.From:
		j.report(j.finding(Dropped, p, o.Node, o.From, fmt.Sprintf("confirmed after %s, and not any more", seconds(d.found-from))))
		*d = obligation{since: o.From}
	case !d.overdue && !d.done && o.From-start > j.allowed(p, start, o.From):
		d.overdue = true
		j.report(j.finding(Overdue, p, o.Node, o.From, fmt.Sprintf("not confirmed, %s after it had to be known", seconds(o.From-start))))
	}
}

// start is since when an agent could know of a pair; down if it, or the other holder's agent, is down.
func (j *Judge) start(p *pair, name string, at time.Duration) (down bool, start time.Duration) {
	start, _ = p.certain()
	start = max(start, p.obligation(name).since)
	for _, other := range p.nodes() {
		isDown, since := j.away(other, at)
		down, start = down || isDown, max(start, since)
	}
	return down, start
}

// allowed is how long after start a pair may be unconfirmed.
func (j *Judge) allowed(p *pair, start, at time.Duration) time.Duration {
	allowed := j.limits.found(p) + j.StalledFor(start, at)
	if a := j.addresses[p.ip]; a != nil && slices.ContainsFunc(a.holders(start, at), func(h Holder) bool {
		return !p.of(h.Node) && j.wasAway(h.Node, start, at)
	}) {
		allowed += j.limits.Unanswered
	}
	return allowed
}

// wasAway returns whether the agent of a node was down at some time between two times.
func (j *Judge) wasAway(name string, from, until time.Duration) bool {
	n := j.nodes[name]
	return n != nil && slices.ContainsFunc(n.outages, func(o span) bool { return o.from <= until && o.until >= from })
}

// count updates the verdicts about the pairs of an address.
func (j *Judge) count(a *address) {
	for _, p := range a.pairs {
		from, until := p.certain()
		_, end := p.possible()
		over := end < j.known
		if from > until {
			continue
		}
		if !p.counted && until-from > j.limits.found(p) {
			p.counted = true
			j.tally.Long++
		}
		all := true
		for _, name := range p.nodes() {
			d := p.obligation(name)
			if !d.done {
				j.verdict(p, name, d, until, over)
			}
			all = all && d.found != 0
		}
		if all && !p.found {
			p.found = true
			j.tally.Found++
		}
	}
}

func (j *Judge) verdict(p *pair, name string, d *obligation, until time.Duration, over bool) {
	from, _ := p.certain()
	switch {
	case d.found != 0:
		d.done = true
		down, start := j.start(p, name, d.found)
		switch late := d.found - start; {
		case down: // it reports the pair before it is known to be ready
		case late > j.allowed(p, start, d.found):
			j.report(j.finding(Late, p, name, d.found, fmt.Sprintf("confirmed %s after it had to be known", seconds(late))))
		}
		if start == from && !down {
			j.tally.delay(max(0, d.found-from), p, name)
		} else {
			j.tally.Held = append(j.tally.Held, max(0, d.found-max(from, start-j.limits.Restart)))
		}
	case over:
		d.done = true
		down, start := j.start(p, name, until)
		if !down && until-start > j.allowed(p, start, until) {
			j.report(j.finding(Missed, p, name, until, fmt.Sprintf("not confirmed in %s", seconds(until-start))))
		}
	}
}

// checkLingering checks whether a confirmed conflict should be over.
func (j *Judge) checkLingering(o *Open, c Conflict) {
	down, since := j.readySince(o, c)
	if down {
		return
	}
	last := max(j.lastTogether(o, c), since)
	if late := o.From - last; late > j.limits.Over+j.StalledFor(last, o.From) {
		j.find(Lingering, o.Node, c, o.From, fmt.Sprintf("confirmed %s after its end", seconds(late)))
		return
	}
	a := j.addresses[c.IP]
	if a == nil {
		return
	}
	for _, h := range c.Holders {
		after := o.From - j.limits.Over
		after -= j.StalledFor(after, o.From)
		if after > since && !a.mayHave(h, after, o.To) {
			j.find(Wrong, o.Node, c, o.From, fmt.Sprintf("%v does not have the address any more", h))
		}
	}
}

// checkSuspicion checks whether a suspicion should be over.
func (j *Judge) checkSuspicion(n *node, o *Open, c Conflict) {
	began, known := n.suspects[c.ID]
	if !known {
		began = o.From
		n.suspects[c.ID] = began
	}
	down, since := j.readySince(o, c)
	if down {
		return
	}
	if since > 0 && began <= since { // it may be from before the restart
		since += j.limits.Restored
	}
	last := max(j.lastTogether(o, c), since, began)
	if late := o.From - last; late > j.limits.Suspicion+j.StalledFor(last, o.From) {
		j.find(Suspicious, o.Node, c, o.From, fmt.Sprintf("suspected for %s with one holder", seconds(late)))
	}
}

// readySince is since when an agent, and those of the holders in a conflict, have had time to resync
// after a restart.
func (j *Judge) readySince(o *Open, c Conflict) (down bool, since time.Duration) {
	names := []string{o.Node}
	for _, h := range c.Holders {
		if !slices.Contains(names, h.Node) {
			names = append(names, h.Node)
		}
	}
	for _, name := range names {
		isDown, from := j.away(name, o.From)
		down, since = down || isDown, max(since, from)
	}
	return down, since
}

// lastTogether is when a holder on the agent's node may last have shared the address of a conflict; 0
// for never.
func (j *Judge) lastTogether(o *Open, c Conflict) (last time.Duration) {
	a := j.addresses[c.IP]
	if a == nil {
		return 0
	}
	for _, p := range a.pairs {
		if from, until := p.possible(); p.of(o.Node) && from <= o.To && from <= until {
			last = max(last, min(until, o.From))
		}
	}
	return last
}
