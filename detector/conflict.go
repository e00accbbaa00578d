package detector

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

const (
	// resolveTime is how long a conflict is held with fewer than two live holders.
	resolveTime = 3 * time.Second
	// stragglerTime is how long a confirmation waits for holders of the same round.
	stragglerTime = 100 * time.Millisecond
)

// conflict is an open suspicion or conflict.
type conflict struct {
	id          string
	state       State
	secondSeen  time.Time
	suspectedAt time.Time
	confirmedAt time.Time
	overlap     time.Duration // proven at the confirmation
	provenAt    time.Time     // as confirmedAt, but by this agent
	former      *former       // nil unless it was restored

	parts []part
	why   string // the last loss
	round time.Time
	below time.Time // confirmed: since when fewer than two are live
	next  time.Time // confirmed: the next re-check
	wake  time.Time // when settle wants to be called again
}

// part is one holder in the published list. Lost ones stay, as last seen, until
// the list is made anew.
type part struct {
	id   HolderID
	live *binding // nil once lost
	last Binding
}

func (p *part) public() Binding {
	if p.live != nil {
		return p.live.public()
	}
	return p.last
}

// lose marks a holder as gone; called while the binding is still whole.
func (c *conflict) lose(b *binding, why string) {
	for i := range c.parts {
		if p := &c.parts[i]; p.live == b {
			p.last, p.live = b.public(), nil
			c.why = why
		}
	}
}

func (c *conflict) setParts(list []*binding) {
	c.parts = c.parts[:0]
	for _, b := range list {
		c.parts = append(c.parts, part{id: b.holder.ID, live: b})
	}
}

// public returns a copy for others.
func (c *conflict) public(key Key) Conflict {
	holders := make([]Binding, 0, len(c.parts))
	for i := range c.parts {
		holders = append(holders, c.parts[i].public())
	}
	slices.SortFunc(holders, func(a, b Binding) int {
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), compareHolders(a.Holder.ID, b.Holder.ID))
	})
	return Conflict{
		ID: c.id, Key: key, State: c.state, Scope: scopeOf(holders), SecondSeen: c.secondSeen,
		SuspectedAt: c.suspectedAt, ConfirmedAt: c.confirmedAt, Holders: holders,
	}
}

func scopeOf(holders []Binding) Scope {
	scope := SameNode
	for _, h := range holders {
		if h.Evidence == Host {
			return PodHost
		}
		if h.Holder.ID.Node != holders[0].Holder.ID.Node {
			scope = CrossNode
		}
	}
	return scope
}

func conflictID(key Key, episode int) string {
	sum := sha256.Sum256([]byte(key.Network + "|" + key.IP.String()))
	return fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:4]), episode)
}

// enough reports whether these holders can make a conflict of this node: rivals of which
// one is local.
func enough(list []*binding) bool {
	return rivals(list) && slices.ContainsFunc(list, func(b *binding) bool { return !b.remote })
}

// rivals reports whether two of these holders rule each other out: any two, unless they
// are nodes.
func rivals(list []*binding) bool {
	return len(list) >= 2 && slices.ContainsFunc(list, func(b *binding) bool { return b.evidence != Host })
}

// settle brings the conflict of an entry up to date with its bindings and probes.
func (d *Detector) settle(e *entry, now time.Time, fx *Effects) {
	for again := true; again; {
		switch {
		case e.conflict != nil && e.conflict.state == Confirmed:
			again = d.settleConfirmed(e, now, fx)
		case e.conflict != nil:
			again = d.settleSuspected(e, now, fx)
		case !e.shared && len(e.bindings) >= 2 && enough(e.counting()):
			d.suspect(e, now, fx)
		default:
			again = false
		}
	}
}

func (d *Detector) suspect(e *entry, now time.Time, fx *Effects) {
	list := e.counting()
	c := &conflict{
		id: conflictID(e.key, e.episode+1), state: Suspected, suspectedAt: now,
	}
	e.conflict, e.faded = c, ""
	d.open[e] = struct{}{}
	c.setParts(list)

	byArrival := slices.SortedFunc(slices.Values(list), func(a, b *binding) int {
		return cmp.Or(a.counted.Compare(b.counted), compareBindings(a, b))
	})
	second := byArrival[1]
	c.secondSeen = second.counted
	d.tally.suspected++
	d.event(e, EventSuspected, now, fmt.Sprintf("%s has it too (%s)", second, second.evidence), fx)
	for _, b := range list {
		d.join(b, now, fx)
	}
}

// join begins the verification of a holder.
func (d *Detector) join(b *binding, now time.Time, fx *Effects) {
	b.probe = &probe{joined: now}
	d.startRound(b, now, fx)
}

func (d *Detector) settleSuspected(e *entry, now time.Time, fx *Effects) bool {
	c, list := e.conflict, e.counting()
	c.wake = time.Time{}
	if c.former != nil {
		d.meet(e, list, now, fx)
	}
	if !enough(list) {
		switch {
		case c.awaited(list, now):
			c.wake = c.former.deadline(list)
			return false
		case c.wasConfirmed():
			c.why = c.former.ending(c.why)
			d.resolve(e, now, fx)
		default:
			if c.former != nil {
				c.why = c.former.ending(c.why)
			}
			d.fade(e, now, fx)
		}
		return true
	}
	reason := c.why
	for _, b := range list {
		if b.probe == nil {
			d.join(b, now, fx)
			reason = b.String() + " has it too"
		}
	}
	if c.former == nil && !c.consistsOf(list) {
		c.setParts(list)
		d.event(e, EventChanged, now, reason, fx)
	}
	if proven := provenTogether(list, d.opts.MinOverlap); enough(proven) {
		if c.wake = c.straggler(list, now); c.wake.IsZero() {
			d.confirm(e, proven, now, fx)
			return true
		}
		return false
	}
	d.plan(c, list, now, fx)
	return false
}

// consistsOf reports whether the published list is exactly these, all live.
func (c *conflict) consistsOf(list []*binding) bool {
	if len(list) != len(c.parts) {
		return false
	}
	for _, b := range list {
		if !slices.ContainsFunc(c.parts, func(p part) bool { return p.live == b }) {
			return false
		}
	}
	return true
}

func (d *Detector) confirm(e *entry, proven []*binding, now time.Time, fx *Effects) {
	c := e.conflict
	c.state, c.confirmedAt, c.provenAt, c.next = Confirmed, now, now, now.Add(recheckTime)
	c.setParts(proven)
	first, latest := proven[0].probe.first, proven[0].probe.latest
	for _, b := range proven {
		b.probe.proven = true
		first, latest = later(first, b.probe.first), earlier(latest, b.probe.latest)
	}
	c.overlap = latest.Sub(first)
	reason := fmt.Sprintf("%d live holders answered both rounds %s apart", len(proven), roughly(c.overlap))
	if c.wasConfirmed() {
		c.confirmedAt = c.former.confirmedAt // it is as old as it is, and counted already
		reason = "verified again after the agent's restart: " + reason
	} else {
		d.tally.confirmed[scopeOf(c.public(e.key).Holders)]++
	}
	d.event(e, EventConfirmed, now, reason, fx)
}

func (d *Detector) fade(e *entry, now time.Time, fx *Effects) {
	// Without a loss, a holder turned out to be a node as well.
	e.faded = nonEmpty(e.conflict.why, "only nodes' own addresses are left")
	d.event(e, EventFaded, now, e.faded, fx)
	d.tally.faded++
	d.close(e)
}

func (d *Detector) resolve(e *entry, now time.Time, fx *Effects) {
	c := e.conflict
	if c.wasConfirmed() {
		c.confirmedAt = c.former.confirmedAt
	}
	c.state = Resolved
	d.event(e, EventResolved, now, c.why, fx)
	last := &fx.Events[len(fx.Events)-1].Conflict
	last.ResolvedAt = now
	d.tally.resolved++
	d.setEpisode(e, e.episode+1)
	d.remember(e, *last)
	d.close(e)
}

func (d *Detector) close(e *entry) {
	for _, b := range e.bindings {
		b.probe = nil
	}
	e.conflict = nil
	delete(d.open, e)
}

func (d *Detector) event(e *entry, kind EventKind, now time.Time, reason string, fx *Effects) {
	e.tell(now, HolderID{}, tellConflict, kind.String()+": "+reason)
	fx.Events = append(fx.Events, Event{
		Kind: kind, At: now, Conflict: e.conflict.public(e.key), Reason: reason, Restored: e.conflict.wasConfirmed(),
	})
}
