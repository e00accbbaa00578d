package detector

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

const (
	// resolveTime is how long a conflict stays confirmed with fewer than two live holders.
	resolveTime  = 3 * time.Second
	recheckTime  = 5 * time.Second  // between two rounds of a confirmed conflict
	longOpenTime = time.Minute      // a conflict that is open for longer has fewer rounds
	slowRecheck  = 30 * time.Second // between two rounds of such a conflict, while all holders answer
	// restoredTime is how long a restored conflict waits for its holders. It is remoteTime if a
	// local holder is back and a remote one is awaited, because the agent has to join the cluster
	// first, and suspicionTime for a suspicion about a remote holder, because keepers name that
	// holder as soon as the local one is leased.
	restoredTime  = 30 * time.Second
	remoteTime    = 90 * time.Second
	suspicionTime = 10 * time.Second

	notFoundAgain = "it was not found again after the agent's restart"
)

// conflict is an open suspicion or conflict. The package comment has its states. It must not have anybody asked, nor change
// what its holders have: it reads the results in their checks.
type conflict struct {
	id          string
	state       State // Suspected or Confirmed
	secondSeen  time.Time
	suspectedAt time.Time
	confirmedAt time.Time     // also while one that a previous agent confirmed is verified again
	overlap     time.Duration // how long two holders had the address together, proven at the confirmation

	restoredAt time.Time // zero unless the conflict was restored from a previous agent
	previous   []Binding // the holders that the previous agent knew
	wasRemote  bool      // one of these was on another node

	listed     []listing
	lost       string    // why the last holder was lost
	round      time.Time // when all holders were probed last
	migration  string    // suspected: the live migration because of which it is not confirmed, a clause for people; empty if there is none
	unnamed    bool      // whether it is not known yet that there is one: the second pod has no name
	belowSince time.Time // confirmed: since when fewer than two holders are live; zero while two are
	wake       time.Time // the next deadline
}

// listing is one holder in the published list. A lost holder stays in the list, with its last state, until
// the list changes next.
type listing struct {
	live *binding // nil once lost
	last Binding
}

// binding returns the last state of the holder's binding.
func (l *listing) binding() Binding {
	if l.live != nil {
		return l.live.public()
	}
	return l.last
}

// awaitedUntil returns until when a restored conflict waits for its holders; zero if the conflict is not
// restored.
func (c *conflict) awaitedUntil(list []*binding) time.Time {
	if c.restoredAt.IsZero() {
		return time.Time{}
	}
	wait := restoredTime
	if c.wasRemote {
		switch {
		case c.confirmedAt.IsZero():
			wait = suspicionTime
		case slices.ContainsFunc(list, (*binding).isLocal):
			wait = remoteTime
		}
	}
	return c.restoredAt.Add(wait)
}

// awaits reports whether a restored conflict waits for a holder long enough for another round.
func (c *conflict) awaits(id HolderID, list []*binding, now time.Time) bool {
	return c.state == Suspected && c.restoredHolder(id) != nil && !now.Add(recheckTime+2*AnswerTime).After(c.awaitedUntil(list))
}

// wasConfirmedBefore reports whether a previous agent confirmed the conflict.
func (c *conflict) wasConfirmedBefore() bool {
	return !c.restoredAt.IsZero() && !c.confirmedAt.IsZero() && !c.confirmedAt.After(c.restoredAt)
}

// restoredHolder returns the holder as a previous agent knew it; nil if it did not know it.
func (c *conflict) restoredHolder(id HolderID) *Binding {
	for i := range c.previous {
		if c.previous[i].Holder.ID == id {
			return &c.previous[i]
		}
	}
	return nil
}

// inherit copies the age and missing names of a holder from the conflict that a previous agent left, if there is one.
func (c *conflict) inherit(b *binding) {
	if c == nil {
		return
	}
	was := c.restoredHolder(b.holder.ID)
	if was == nil {
		return
	}
	if !was.FirstSeen.After(b.firstSeen) {
		b.firstSeen, b.atStart = was.FirstSeen, was.FoundAtStart
	}
	if b.holder.Pod == (Pod{}) {
		b.holder.describePod(&was.Holder)
	}
	b.holder.NetnsName = cmp.Or(b.holder.NetnsName, was.Holder.NetnsName)
}

// list replaces the listed holders.
func (c *conflict) list(live []*binding) {
	c.listed = c.listed[:0]
	for _, b := range live {
		c.listed = append(c.listed, listing{live: b, last: b.public()})
	}
}

// lose marks the holders as lost that do not count any more.
func (c *conflict) lose(all []ceased) {
	for _, lost := range all {
		for i := range c.listed {
			if l := &c.listed[i]; l.live == lost.binding {
				l.last, l.live = lost.last, nil
				c.lost = lost.why
			}
		}
	}
}

// pause returns the time between two rounds. Probes cost the pods' network a few frames, so there are
// fewer rounds once a conflict has been open for a while, unless a holder is silent. A suspicion that
// waits for a holder that cannot be probed has rounds as well: it ends when the others do not answer.
func (c *conflict) pause(list []*binding, now time.Time) time.Duration {
	silent := slices.ContainsFunc(list, func(b *binding) bool { return !b.check.silent.IsZero() })
	switch {
	case c.migration != "" && c.unnamed: // the next reply of another node may have the name
		return AnswerTime
	case c.state == Suspected && c.migration == "" && !now.Before(c.awaitedUntil(list)):
		return slowRecheck
	case c.state == Confirmed && !silent && now.Sub(schedule.Later(c.confirmedAt, c.restoredAt)) >= longOpenTime:
		return slowRecheck
	default:
		return recheckTime
	}
}

// ending returns the reason why a conflict with fewer than two live holders ends.
func (c *conflict) ending() string {
	switch {
	case c.state == Confirmed || c.restoredAt.IsZero():
		// If no holder was lost, a holder that looked like a pod is the node itself.
		return cmp.Or(c.lost, "only nodes' own addresses are left")
	case c.lost == "":
		return notFoundAgain
	default:
		return notFoundAgain + ": " + c.lost
	}
}

// public returns a copy for callers of the package.
func (c *conflict) public(e *entry) Conflict {
	holders := make([]Binding, 0, len(c.listed))
	for _, l := range c.listed {
		l.last = l.binding()
		l.last.Gone = c.state == Confirmed && (l.live == nil || l.live.check != nil && !l.live.check.silent.IsZero())
		holders = append(holders, l.last)
	}
	slices.SortFunc(holders, CompareAge)
	p := Conflict{
		ID: c.id, Key: e.key, State: c.state, Scope: scopeOf(holders), SecondSeen: c.secondSeen,
		SuspectedAt: c.suspectedAt, ConfirmedAt: c.confirmedAt, Holders: holders,
	}
	if c.state == Suspected {
		p.ConfirmedAt, p.Pending = time.Time{}, c.pending(e.counting())
	}
	return p
}

func (c *conflict) isDrill(e *entry) bool { return e.key.IsForDrills() && new(c.public(e)).IsDrill() }

func scopeOf(holders []Binding) Scope {
	scope := SameNode
	for _, h := range holders {
		if h.Evidence == Host && !slices.ContainsFunc(holders, func(b Binding) bool { return b.Evidence != Host }) {
			return NodeNode
		}
		if h.Evidence == Host {
			return PodHost
		}
		if h.Holder.ID.Node != holders[0].Holder.ID.Node {
			scope = CrossNode
		}
	}
	return scope
}

func conflictID(key Key, occurrence int) string {
	sum := sha256.Sum256([]byte(key.Network + "|" + key.IP.String()))
	return fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:4]), occurrence)
}

// proof says what two rounds have shown of these holders.
func (c *conflict) proof(holders string) string {
	configured := proofs{one: "by the list of its kernel", many: "by the lists of their kernels"}
	deaf := proofs{one: "by what it answers to others, and not to this node", many: "by what they answer to others, and not to this node"}
	for _, l := range c.listed {
		switch {
		case l.live == nil:
		case l.live.check != nil && l.live.check.configured:
			configured.count++
		case l.live.isDeaf():
			deaf.count++
		}
	}
	what := "answered both rounds"
	if configured.count+deaf.count > 0 {
		what = "had it in both rounds"
	}
	return fmt.Sprintf("%s %s %s apart", holders, what, roughly(c.overlap)) + configured.String() + deaf.String()
}

// proofs counts holders that did not answer a probe themselves.
type proofs struct {
	count     int
	one, many string
}

// String is a clause, empty if there are none.
func (p proofs) String() string {
	switch p.count {
	case 0:
		return ""
	case 1:
		return ", 1 " + p.one
	}
	return fmt.Sprintf(", %d %s", p.count, p.many)
}

// pending says why a suspected conflict of these holders is not confirmed yet.
func (c *conflict) pending(list []*binding) string {
	if c.isAwaiting(list) {
		was := Suspected
		if !c.confirmedAt.IsZero() {
			was = Confirmed
		}
		return was.String() + " before the agent's restart, its holders are not all seen again yet"
	}
	if c.migration != "" {
		return c.migration
	}
	what := "being verified"
	if areNodes(list) {
		what = "being verified for longer, because a virtual address that moves is on both nodes for a while"
	}
	if !c.restoredAt.IsZero() {
		what = "being verified again after the agent's restart"
	}
	for _, b := range list {
		if k := b.check; k != nil && (k.phase == blocked || k.noReply > 0) {
			return fmt.Sprintf("one cannot be probed (%s)", k.deferral.reason)
		} else if k != nil && k.phase == waiting {
			what = fmt.Sprintf("one is not probed yet (%s)", k.deferral.reason)
		}
	}
	return what
}

// isAwaiting reports whether not all holders of a restored conflict are seen again.
func (c *conflict) isAwaiting(list []*binding) bool { return !c.restoredAt.IsZero() && !enough(list) }
