package detector

import (
	"container/list"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// entry has the bindings, the conflict and the notes of one key.
type entry struct {
	key         Key
	bindings    []*binding // in order of arrival
	conflict    *conflict  // the open one
	occurrences int        // number of conflicts resolved so far
	kept        int        // number of these that are still in the history
	hasStory    bool       // it once had a holder that counted
	shared      bool       // the configuration declares it shared
	suppressed  string     // why two holders raise no suspicion now; empty if nothing is suppressed
	faded       string     // why the last suspicion faded; empty if there was a conflict since
	penalties   []penalty
	notes       []note
	former      []former // holders that are gone: the last ones of this node, and those of notes, the last one last

	schedule.Place
	at   time.Time // next deadline
	idle *list.Element
}

// binding is one holder of one key, in the table.
type binding struct {
	entry     *entry
	holder    Holder
	remote    bool // the holder is on another node; the binding always counts
	evidence  Evidence
	firstSeen time.Time
	atStart   bool // see Binding.FoundAtStart
	life      uint64
	// counted is when the binding began to count; zero while it does not.
	counted time.Time
	sources []source
	refresh refresh
	check   *check    // while the key is in an open conflict
	stopped time.Time // when the agent of a remote holder ended in order; zero if it is there
	leased  lease     // as TakeChanges returned it last
	changed bool      // it is in Detector.changed

	rank int
	elem *list.Element // in Detector.ranks[rank]
}

// source is an interface on which the agent observed a holder with the address.
type source struct {
	iface Interface
	name  string
	mac   MAC
	last  [Host + 1]time.Time // by evidence
}

func (s *source) seen() time.Time { return slices.MaxFunc(s.last[:], time.Time.Compare) }

// find returns the binding of a holder, nil if there is none. The entry may be nil.
func (e *entry) find(id HolderID) *binding {
	if e == nil {
		return nil
	}
	for _, b := range e.bindings {
		if b.holder.ID == id {
			return b
		}
	}
	return nil
}

// counting returns the bindings that support a suspicion, the oldest first.
func (e *entry) counting() []*binding {
	list := slices.DeleteFunc(slices.Clone(e.bindings), func(b *binding) bool { return !b.counts() })
	slices.SortFunc(list, compareBindings)
	return list
}

// next returns the earliest deadline of the entry after now; zero if it has none.
func (d *Detector) next(e *entry, now time.Time) time.Time {
	var at time.Time
	for _, b := range e.bindings {
		if b.counts() {
			at = schedule.Earlier(at, b.lastOf(b.evidence).Add(bindingTTL))
		} else {
			at = schedule.Earlier(at, b.lastSeen().Add(bindingTTL))
			if p := e.penalty(b.holder.ID); p != nil && p.until().After(now) {
				at = schedule.Earlier(at, p.until())
			}
		}
		if e.conflict == nil {
			at = schedule.Earlier(at, d.refreshDue(b))
		}
		if b.check != nil {
			at = schedule.Earlier(at, b.check.due())
		}
		if !b.stopped.IsZero() {
			at = schedule.Earlier(at, b.stopped.Add(stoppedTime))
		}
	}
	if e.conflict != nil {
		at = schedule.Earlier(at, e.conflict.wake)
	}
	return at
}

// counts reports whether the binding supports a suspicion.
func (b *binding) counts() bool { return b.evidence >= Claimed }

func (b *binding) isLocal() bool { return !b.remote }

// isNewcomer reports whether the holder is not among those of a confirmed conflict yet.
func (b *binding) isNewcomer() bool { return !b.check.proven }

// lastOf returns when such evidence was seen last, on any interface.
func (b *binding) lastOf(e Evidence) time.Time {
	var t time.Time
	for i := range b.sources {
		t = schedule.Later(t, b.sources[i].last[e])
	}
	return t
}

func (b *binding) lastSeen() time.Time {
	var t time.Time
	for i := range b.sources {
		t = schedule.Later(t, b.sources[i].seen())
	}
	return t
}

func (b *binding) source(i Interface) *source {
	if k := slices.IndexFunc(b.sources, func(s source) bool { return s.iface == i }); k >= 0 {
		return &b.sources[k]
	}
	return nil
}

// latestSource returns the source that was seen last. It describes the holder and is probed.
func (b *binding) latestSource() *source {
	best := &b.sources[0]
	for i := range b.sources[1:] {
		s := &b.sources[i+1]
		if s.last[b.evidence].After(best.last[b.evidence]) {
			best = s
		}
	}
	return best
}

// public returns the binding as a copy for callers of the package.
func (b *binding) public() Binding {
	return Binding{
		Key: b.entry.key, Holder: b.holder, Evidence: b.evidence,
		FirstSeen: b.firstSeen, FoundAtStart: b.atStart, LastSeen: b.lastSeen(), Unreachable: b.check != nil && b.check.noReply > 0,
	}
}

// String names the holder for people, with its node if that is another node.
func (b *binding) String() string {
	if !b.remote {
		return b.holder.String()
	}
	name := "a holder" // its node has not sent its name yet
	if b.holder.Pod.Name != "" || b.holder.NetnsName != "" {
		name = b.holder.String()
	}
	return name + " on node " + b.node()
}

// node names the holder's node, with its boot id if another node of that name has a holder of the key.
func (b *binding) node() string {
	name, boot, _ := strings.Cut(b.holder.ID.Node, "/")
	for _, other := range b.entry.bindings {
		id := other.holder.ID.Node
		if namesake, _, _ := strings.Cut(id, "/"); namesake == name && id != b.holder.ID.Node {
			return fmt.Sprintf("%s (boot %.8s)", name, boot)
		}
	}
	return name
}
