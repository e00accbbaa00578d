package detector

import (
	"cmp"
	"container/list"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// Options are the identity and the limits of a Detector. A limit that is zero or negative takes its default.
type Options struct {
	// Node identifies the node whose detector this is, as in [HolderID].
	Node string
	// MinOverlap is the least time between the two rounds of a verification. So the holders of a
	// confirmed conflict had the address together for at least that time. Default 1 s.
	MinOverlap time.Duration
	// MaxBindings limits the bindings in the table. Default 65,536.
	MaxBindings int
	// MaxPerInterface limits the bindings of one interface. Default 256.
	MaxPerInterface int
	// MaxHistory limits the resolved conflicts that are kept, and also the stories of addresses without
	// holders. Default 1,000.
	MaxHistory int
}

const (
	defaultMinOverlap      = time.Second
	defaultMaxBindings     = 65_536
	defaultMaxPerInterface = 256
	defaultMaxHistory      = 1_000

	bindingTTL      = 5 * time.Minute // of a binding without evidence
	maxHolders      = 64              // per key
	maxRemote       = 16              // remote holders per key
	maxRemoteOfNode = 4               // remote holders per key and node
	maxSources      = 4               // interfaces per binding
	maxNotes        = 32              // per key
)

func (o Options) withDefaults() Options {
	o.MinOverlap = cmp.Or(max(o.MinOverlap, 0), defaultMinOverlap)
	o.MaxBindings = cmp.Or(max(o.MaxBindings, 0), defaultMaxBindings)
	o.MaxPerInterface = cmp.Or(max(o.MaxPerInterface, 0), defaultMaxPerInterface)
	o.MaxHistory = cmp.Or(max(o.MaxHistory, 0), defaultMaxHistory)
	return o
}

// Detector has the bindings of one node, matches their holders and follows each conflict through
// its states. Use New. It is not safe for concurrent use, and the `now` of its calls must not go
// back.
type Detector struct {
	opts Options

	entries map[Key]*entry
	holders map[HolderID][]*binding
	ifaces  map[Interface][]*binding
	ranks   [ranks]list.List // of *binding, least recently seen first
	open    map[*entry]struct{}
	remotes [Host + 1]int // bindings by evidence; index 0 is not used
	idle    list.List     // of *entry: stories without bindings, oldest first
	history []resolved    // oldest first
	shares  map[kind]*share
	// What the caller has not taken yet.
	withdrawn []Change
	changed   []*binding
	ended     []Ended

	shared func(Key) bool // nil: no key is

	due    schedule.Schedule[*entry]
	round  uint32 // the number of the last round that began
	counts Counts // what only grows
}

// New returns an empty Detector.
func New(opts Options) *Detector {
	return &Detector{
		opts:    opts.withDefaults(),
		entries: make(map[Key]*entry),
		holders: make(map[HolderID][]*binding),
		shares:  make(map[kind]*share),
		ifaces:  make(map[Interface][]*binding),
		open:    make(map[*entry]struct{}),
		counts:  newCounts(),
	}
}

// Observe records one sighting. It drops and counts a sighting that has no address, holder or known
// evidence, is older than the TTL, or exceeds a limit. It records a remote holder only if a local holder
// of the address counts.
//
// The Holder of the sighting updates the description of the binding; an unknown MAC and empty names
// change nothing.
func (d *Detector) Observe(s Sighting, now time.Time) (fx Effects) {
	if s.At.IsZero() || s.At.After(now) {
		s.At = now
	}
	if !s.Key.IP.IsValid() || s.Holder.ID == (HolderID{}) || s.Evidence < Forwarded || s.Evidence > Host {
		d.counts.Refused[refusedInvalid]++
		return fx
	}
	if now.Sub(s.At) >= bindingTTL {
		d.counts.Refused[refusedOld]++
		return fx
	}
	if s.Answer && s.Evidence == Data {
		s.Evidence = Announced // the holder itself answered
	}
	remote := s.Holder.ID.Node != d.opts.Node
	if remote && !d.acceptRemote(&s, now) {
		return fx
	}

	b := d.entries[s.Key].find(s.Holder.ID)
	fresh := b == nil
	if fresh {
		if b = d.admit(&s, now); b == nil {
			return fx
		}
	}
	if remote {
		d.updateRemote(b, &s)
	}
	if d.recordSighting(b, &s, now, fresh, &fx) { // otherwise deadlines only moved to later times
		d.update(b.entry, now, &fx)
	}
	return fx
}

// Withdraw ends the binding of one holder, for example because the address left its netns. It does
// nothing when there is none.
func (d *Detector) Withdraw(key Key, id HolderID, reason string, now time.Time) (fx Effects) {
	if b := d.entries[key].find(id); b != nil {
		d.remove(b, noteGone, reason, now)
		d.update(b.entry, now, &fx)
	}
	return fx
}

// WithdrawInterface ends the bindings of an interface that is gone. A holder that has the address on
// another interface keeps its binding. The caller must drop later sightings from that interface.
func (d *Detector) WithdrawInterface(i Interface, reason string, now time.Time) (fx Effects) {
	affected := slices.Clone(d.ifaces[i])
	slices.SortFunc(affected, compareBindings)
	for _, b := range affected {
		isOnOthers := len(b.sources) > 1
		if isOnOthers {
			d.dropSource(b, i)
			isOnOthers = d.refreshEvidence(b, now, noteGoneOnOne, reason)
		}
		if isOnOthers {
			b.entry.record(now, b.holder.ID, noteGoneOnOne, reason)
			if b.check != nil && b.check.phase == probing {
				d.startRound(b, now, &fx) // the probes on the old interface may be lost
			}
		} else {
			d.remove(b, noteGone, reason, now)
		}
		d.update(b.entry, now, &fx)
	}
	return fx
}

// Tick does everything that is due at now. Afterwards Next is later than now.
func (d *Detector) Tick(now time.Time) (fx Effects) {
	for e := d.due.First(); e != nil && !e.at.After(now); e = d.due.First() {
		d.advance(e, now, &fx)
	}
	return fx
}

// Next returns when Tick has something to do; zero when there is nothing. It is never later than
// the true deadline but may be earlier. It takes O(1).
func (d *Detector) Next() time.Time {
	if e := d.due.First(); e != nil {
		return e.at
	}
	return time.Time{}
}

// maxSteps bounds how often one entry is advanced at one time: a mistake would be a busy loop.
const maxSteps = 8

// advance runs the deadlines of one entry until none is due.
func (d *Detector) advance(e *entry, now time.Time, fx *Effects) {
	for range maxSteps {
		if e.Place == 0 || e.at.After(now) {
			return
		}
		d.step(e, now, fx)
	}
	if e.Place != 0 && !e.at.After(now) {
		d.counts.Overdue++
		d.schedule(e, now.Add(time.Second))
	}
}

// step runs the deadlines of one entry once.
func (d *Detector) step(e *entry, now time.Time, fx *Effects) {
	ttl := bindingTTL.String()
	for _, b := range slices.Clone(e.bindings) {
		if !b.stopped.IsZero() && now.Sub(b.stopped) >= stoppedTime {
			d.remove(b, noteStopped, stoppedTime.String(), now)
		} else if !d.refreshEvidence(b, now, noteTTL, ttl) {
			d.remove(b, noteTTL, ttl, now)
		}
	}
	for _, b := range slices.Clone(e.bindings) {
		d.advanceCheck(b, now, fx)
	}
	d.advanceConflict(e, now, fx)
	for _, b := range e.bindings {
		d.probeSilent(b, now, fx) // last, because the conflict may have ended
	}
	d.finish(e, now)
}

// update brings the conflict of a changed entry and its place in the schedule up to date.
func (d *Detector) update(e *entry, now time.Time, fx *Effects) {
	d.advanceConflict(e, now, fx)
	d.finish(e, now)
}

// finish schedules a changed entry. An entry without bindings and conflict is kept if it has a story, and
// otherwise forgotten.
func (d *Detector) finish(e *entry, now time.Time) {
	d.dropRemote(e, now)
	d.countSuppressed(e)
	if len(e.bindings) == 0 && e.conflict == nil {
		d.retire(e)
		return
	}
	d.schedule(e, d.next(e, now))
}

// Describe calls f to change the description of a holder in all its bindings and open conflicts, when the
// caller finds a name later. f must not keep its argument; it cannot change the ID. The key is that of the binding or
// the conflict. The effects are events of confirmed conflicts.
func (d *Detector) Describe(id HolderID, f func(Key, *Holder), now time.Time) Effects {
	return d.describe(id, f, maps.Keys(d.open), now)
}

// DescribeAt is Describe for the bindings of a holder and the open conflict of one key. It does not
// search the other conflicts.
func (d *Detector) DescribeAt(key Key, id HolderID, f func(Key, *Holder), now time.Time) Effects {
	return d.describe(id, f, slices.Values([]*entry{d.entries[key]}), now)
}

func (d *Detector) describe(id HolderID, f func(Key, *Holder), entries iter.Seq[*entry], now time.Time) (fx Effects) {
	describe := func(key Key, h *Holder) {
		if h.ID == id {
			f(key, h)
			h.ID = id
		}
	}
	for _, b := range d.holders[id] {
		describe(b.entry.key, &b.holder)
		if b.remote {
			b.holder.Interface = Interface{}
		}
		d.noteChange(b)
	}
	for e := range entries {
		if e == nil || e.conflict == nil {
			continue
		}
		for i := range e.conflict.listed {
			h := &e.conflict.listed[i].last.Holder // lost holders are in no table
			was := *h
			if describe(e.key, h); e.conflict.state == Confirmed {
				if name := named(was, *h); name != "" {
					d.event(e, EventChanged, now, name, &fx)
				}
			}
		}
		for i := range e.conflict.previous {
			describe(e.key, &e.conflict.previous[i].Holder)
		}
	}
	slices.SortStableFunc(fx.Events, func(a, b Event) int { return a.Conflict.Key.Compare(b.Conflict.Key) })
	return fx
}

// named says which pod a holder turns out to be; nothing if that was known, or is not known.
func named(was, is Holder) string {
	if is.Pod.Name == "" || is.Pod.String() == was.Pod.String() {
		return ""
	}
	return fmt.Sprintf("%s is %s", was, is)
}

func compareBindings(a, b *binding) int {
	return cmp.Or(
		a.entry.key.Compare(b.entry.key),
		a.firstSeen.Compare(b.firstSeen),
		a.holder.ID.Compare(b.holder.ID),
	)
}
