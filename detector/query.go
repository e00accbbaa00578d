package detector

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// Bindings returns the bindings that keep accepts (nil accepts all), ordered by network, address
// and FirstSeen, also those of remote holders. keep must not retain its argument.
func (d *Detector) Bindings(keep func(*Binding) bool) []Binding {
	list := make([]Binding, 0, d.table.size())
	for _, e := range d.table.entries {
		for _, b := range e.bindings {
			if p := b.public(); keep == nil || keep(&p) {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b Binding) int { return cmp.Or(a.Key.Compare(b.Key), CompareAge(a, b)) })
	return list
}

// Each calls f with the parts of each binding that Bindings returns, in no order, and copies nothing. f must neither change nor retain the holder.
func (d *Detector) Each(f func(key Key, holder *Holder, evidence Evidence)) {
	for key, e := range d.table.entries {
		for _, b := range e.bindings {
			f(key, &b.holder, b.shown())
		}
	}
}

// Conflicts returns the open suspicions and conflicts by SuspectedAt and, with all, after them the
// resolved ones that are remembered, the newest first.
func (d *Detector) Conflicts(all bool) []Conflict {
	list := make([]Conflict, 0, len(d.conflicts.open))
	for e := range d.conflicts.open {
		list = append(list, e.conflict.public(e))
	}
	slices.SortFunc(list, compareConflicts)
	if all {
		for _, c := range slices.Backward(d.conflicts.history.list) {
			list = append(list, c.clone())
		}
	}
	return list
}

func compareConflicts(a, b Conflict) int {
	return cmp.Or(a.SuspectedAt.Compare(b.SuspectedAt), a.Key.Compare(b.Key))
}

// Counts returns the present figures. Its run time is linear in the number of open conflicts.
func (d *Detector) Counts() Counts {
	t, l := d.table, d.conflicts
	c := l.counts
	c.Refused, c.Evicted, c.Suppressed = maps.Clone(t.counts.Refused), maps.Clone(t.counts.Evicted), maps.Clone(t.counts.Suppressed)
	c.Suppressed[suppressedMigration] = l.counts.Suppressed[suppressedMigration]
	c.Confirmed, c.Overdue = maps.Clone(c.Confirmed), t.counts.Overdue
	c.Keys, c.History = t.due.Len(), len(l.history.list)
	c.Bindings, c.Open, c.Drills = make(map[Evidence]int), make(map[StateScope]int), map[State]int{Suspected: 0, Confirmed: 0}
	for ev := Forwarded; ev <= Host; ev++ {
		if ev == Silent { // counted as Forwarded
			continue
		}
		c.Bindings[ev] = t.ranks[rankOf(ev, true)].Len() - t.remotes[ev]
		c.Remote += t.remotes[ev]
	}
	c.Bindings[Forwarded] += t.ranks[rankForwarded].Len()
	for s := range c.Confirmed {
		c.Open[StateScope{Suspected, s}], c.Open[StateScope{Confirmed, s}] = 0, 0
	}
	for e := range l.open {
		p := e.conflict.public(e)
		if p.IsDrill() {
			c.Drills[p.State]++
			continue
		}
		c.Open[StateScope{p.State, p.Scope}]++
	}
	return c
}

// Holds reports whether the holder has a binding of the key that supports a suspicion.
func (d *Detector) Holds(key Key, id HolderID) bool {
	b := d.table.entries[key].find(id)
	return b != nil && b.counts()
}

// Holder returns the binding of a holder, false if there is none.
func (d *Detector) Holder(key Key, id HolderID) (Binding, bool) {
	b := d.table.entries[key].find(id)
	if b == nil {
		return Binding{}, false
	}
	return b.public(), true
}

// IsConfirmed reports whether an address has an open conflict that is confirmed.
func (d *Detector) IsConfirmed(key Key) bool {
	e := d.table.entries[key]
	return e != nil && e.conflict != nil && e.conflict.state == Confirmed
}

// Deaf reports whether a holder of this node counts as one by what it answers to others, and not to this agent. Then other nodes that ask are
// told that it answers, but only while it counts together with another holder here: what they confirmed would end with the suspicion that
// fades here.
func (d *Detector) Deaf(key Key, id HolderID) bool {
	b := d.table.entries[key].find(id)
	return b != nil && b.counts() && b.isDeaf() && b.check.together()
}

// SuppressedUntil returns until when a holder is not to be probed again, because it announced the address
// and did not answer in a round; zero for at once.
func (d *Detector) SuppressedUntil(key Key, id HolderID) time.Time {
	if e := d.table.entries[key]; e != nil {
		if p := e.penalties.of(id); p != nil && p.level > 0 {
			return p.until()
		}
	}
	return time.Time{}
}

// LocalHolders returns the local bindings of a key that count, the oldest first, and the number of resolved conflicts of
// the key that this node knows of. There are no bindings if the key is declared shared.
func (d *Detector) LocalHolders(key Key) (list []Binding, occurrences int) {
	e := d.table.entries[key]
	if e == nil || e.shared {
		return nil, 0
	}
	for _, b := range e.counting() {
		if !b.remote {
			p := b.public()
			p.Life = b.life
			list = append(list, p)
		}
	}
	return list, e.occurrences
}

// Twin is an address of this node that another node has, too: for themselves, or for pods on segments of which nobody knows whether they are one.
type Twin struct {
	Own, Other Binding
	Since      time.Time // when the second one had it, as far as is known
}

// Twins returns the addresses of this node that other nodes have had for a while, too, and that are in no confirmed conflict: nobody was heard on
// the segment, or they are gateways. They are ordered by address.
func (d *Detector) Twins(now time.Time) (list []Twin) {
	for _, e := range d.table.entries {
		if len(e.bindings) < 2 || e.shared || e.conflict != nil && e.conflict.state == Confirmed {
			continue
		}
		for _, own := range e.bindings {
			for _, b := range e.bindings {
				since := schedule.Later(own.firstSeen, b.firstSeen)
				if !own.remote && own.counts() && b.remote && b.has() && Told(own.holder.Place, b.holder.Place) && now.Sub(since) >= d.verifier.nodeOverlap {
					list = append(list, Twin{own.public(), b.public(), since})
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b Twin) int { return cmp.Or(a.Own.Key.Compare(b.Own.Key), CompareAge(a.Other, b.Other)) })
	return list
}

// Explain returns the story of an address in each network in which it is or was known, ordered by
// network. It searches the whole table.
func (d *Detector) Explain(ip netip.Addr) []Story {
	var stories []Story
	for _, e := range d.table.entries {
		if e.key.IP == ip {
			stories = append(stories, e.public(&d.conflicts.history))
		}
	}
	slices.SortFunc(stories, func(a, b Story) int { return a.Key.Compare(b.Key) })
	return stories
}

// public returns all that is known of the key.
func (e *entry) public(h *history) Story {
	s := Story{Key: e.key, Verdict: e.verdict()}
	for _, b := range slices.SortedFunc(slices.Values(e.bindings), compareBindings) {
		s.Bindings = append(s.Bindings, b.public())
	}
	if e.conflict != nil {
		s.Conflict = new(e.conflict.public(e))
	} else {
		s.Conflict = h.last(e.key)
	}
	for _, f := range slices.Backward(e.former) {
		if f.here && e.find(f.Holder.ID) == nil {
			s.Former = append(s.Former, f.Binding)
		}
	}
	for i := range e.notes {
		s.Notes = append(s.Notes, e.publicNote(&e.notes[i]))
	}
	return s
}

// publicNote returns a note as a copy for callers of the package.
func (e *entry) publicNote(n *note) Note {
	text := fmt.Sprintf(n.text, n.arg)
	if n.template == noteAnswer || n.template == noteAnswerAgain {
		text += " after " + roughly(n.took)
	}
	if n.count > 1 {
		text += fmt.Sprintf(" (%d times)", n.count)
	}
	holder := Holder{ID: n.holder, Interface: Interface{n.holder.Ifindex, n.holder.Generation}}
	if h := e.described(n.holder); h != nil {
		holder.Pod, holder.NetnsName, holder.InterfaceName = h.Pod, h.NetnsName, h.InterfaceName
	}
	return Note{At: n.at, Kind: n.kind, Holder: holder, Text: text}
}

// verdict says in one sentence why this is or is not a conflict.
func (e *entry) verdict() string {
	if c := e.conflict; c != nil {
		return c.verdict(e)
	}
	var holders []Binding
	names := make(map[Evidence][]string)
	for _, b := range e.bindings {
		p := b.public()
		holders = append(holders, p)
		names[p.Evidence] = append(names[p.Evidence], b.String())
	}
	var others []string
	for _, ev := range []Evidence{Forwarded, Silent} {
		if list := names[ev]; len(list) > 0 {
			slices.Sort(list)
			others = append(others, notCounted[ev]+List(list))
		}
	}
	by := strings.Join(others, ", ")
	if by != "" {
		by += ": not counted"
	}
	if by != "" && len(names[Forwarded])+len(names[Silent]) == len(holders) {
		return "known only as " + by
	}
	text := NoConflict(holders, e.shared)
	if e.faded != "" {
		text += "; the last suspicion faded because " + e.faded
	} else if e.kept > 0 {
		text += "; the last conflict is resolved"
	}
	if by != "" {
		text += "; also " + by
	}
	return text + e.flapping()
}

// notCounted says why such holders do not count.
var notCounted = map[Evidence]string{Forwarded: "forwarded by ", Silent: "that of a holder that does not answer, "}

// NoConflict says in one clause why the holders of an address are not known as a conflict: those of one node, or of all nodes
// that answered. shared is whether the configuration allows many.
func NoConflict(holders []Binding, shared bool) string {
	list := slices.DeleteFunc(slices.Clone(holders), func(b Binding) bool { return !b.Evidence.Counts() })
	all := func(ev Evidence) bool {
		return !slices.ContainsFunc(list, func(b Binding) bool { return b.Evidence != ev })
	}
	switch n := len(list); {
	case n < 2:
		return liveHolders(n) + ": not a conflict"
	case all(Host):
		return number(n) + " nodes have it as their own address, and not on one segment as far as is known: not a conflict"
	case all(Claimed):
		return number(n) + " holders claim it and have it on other devices: not a conflict"
	case shared:
		return liveHolders(n) + ", but declared shared: not a conflict"
	default:
		return liveHolders(n) + " on different nodes, which do not know of each other yet, or one did not answer: no conflict is known"
	}
}

func (c *conflict) verdict(e *entry) string {
	list := e.counting()
	if c.state != Confirmed {
		text := c.pending(list)
		if !c.isAwaiting(list) {
			text = number(len(list)) + " holders, " + text
		}
		return text + ": suspected, not confirmed" + e.flapping()
	}
	var proven []HolderID
	for _, l := range c.listed {
		if l.live != nil {
			proven = append(proven, l.last.Holder.ID)
		}
	}
	text, left := liveHolders(len(c.listed)), ""
	if n := len(proven); n < 2 && n < len(c.listed) {
		text, left = number(len(c.listed))+" holders", "; "+liveHolders(n)+" is left"
	} else if n < len(c.listed) {
		text, left = number(len(c.listed))+" holders", "; "+liveHolders(n)+" are left"
	}
	text = c.proof(text) + ": a conflict"
	if c.isDrill(e) {
		text += " for a drill"
	}
	text += left
	if !c.belowSince.IsZero() {
		text += "; it is about to end because " + c.lost
	}
	var unverified []string
	for _, b := range list {
		if !slices.Contains(proven, b.holder.ID) {
			unverified = append(unverified, b.String())
		} else if k := b.check; k != nil && k.proven && k.noReply > 0 {
			text += fmt.Sprintf("; %s cannot be probed now (%s)", b, k.deferral.reason)
		}
	}
	if len(unverified) > 0 {
		text += "; not verified yet: " + List(unverified)
	}
	return text
}

// liveHolders is a number of live holders.
func liveHolders(n int) string {
	if n < 2 {
		return number(n) + " live holder"
	}
	return number(n) + " live holders"
}

// number is a number from 0 on, as sentences have it.
func number(n int) string {
	if words := []string{"no", "one", "two"}; n < len(words) {
		return words[n]
	}
	return fmt.Sprint(n)
}
