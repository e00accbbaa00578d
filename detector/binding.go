package detector

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// entry is what is known of one key: what the parts leave for each other.
type entry struct {
	key         Key
	bindings    []*binding // in order of arrival
	conflict    *conflict  // the open one
	ticket      *ticket    // while it waits for a round
	asked       string     // the other node that is being asked in a round; empty if none is
	occurrences int        // number of conflicts resolved so far
	kept        int        // number of these that are still in the history
	shared      bool       // the configuration declares it shared
	suppressed  string     // why two holders raise no suspicion now; empty if nothing is suppressed
	penalties   penalties
	deaf        []deaf
	ceased      []ceased // since the conflict was brought up to date
	story

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
	// listed: see Sighting.Listed. overheard is when it answered somebody else last.
	listed    bool
	overheard time.Time
	check     *check    // while the key is in an open conflict
	stopped   time.Time // when the agent of a remote holder ended in order; zero if it is there
	leased    lease     // as it was taken last
	changed   bool      // it is in changes.changed
	ranked
}

// refresh is the state of the probes that keep a silent local binding.
type refresh struct {
	count  int       // number of probes since the last evidence
	after  time.Time // no probe before this time
	jitter time.Duration
}

// ranked is the place of a binding in table.ranks.
type ranked struct {
	rank int
	elem *list.Element
}

// source is an interface on which the agent observed a holder with the address.
type source struct {
	iface Interface
	name  string
	mac   MAC
	last  [Host + 1]time.Time // by evidence
}

// ceased is a binding that does not count any more, as it was, and why.
type ceased struct {
	*binding
	last Binding
	why  string
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

// remotes counts the remote holders of one node, or of all nodes if it is empty.
func (e *entry) remotes(node string) (n int) {
	for _, b := range e.bindings {
		if b.remote && (node == "" || b.holder.ID.Node == node) {
			n++
		}
	}
	return n
}

// hasLocal reports whether a local holder has the address.
func (e *entry) hasLocal() bool {
	return slices.ContainsFunc(e.bindings, func(b *binding) bool { return !b.remote && b.counts() })
}

// unverified returns the oldest remote holder that never answered and cannot be probed; nil if
// there is none. It makes room for another one, which perhaps can be verified.
func (e *entry) unverified() *binding {
	for _, b := range e.bindings {
		if c := b.check; b.remote && c != nil && c.latest.IsZero() && !c.proven &&
			(c.phase == waiting || c.phase == blocked || c.noReply > 0) {
			return b
		}
	}
	return nil
}

// effective returns the evidence of a sighting, by the penalties of its holder. The entry may be nil.
func (e *entry) effective(s *Sighting, now time.Time) Evidence {
	if e == nil {
		return s.Evidence
	}
	return e.penalties.effective(s, now)
}

// described returns the description of a holder that has or had a binding; nil if it is not known.
func (e *entry) described(id HolderID) *Holder {
	if b := e.find(id); b != nil {
		return &b.holder
	}
	if n := e.formerOf(id); n >= 0 {
		return &e.former[n].Holder
	}
	return nil
}

// next returns the earliest deadline of the entry after now; zero if it has none.
func (e *entry) next(now time.Time) time.Time {
	var at time.Time
	for _, b := range e.bindings {
		if b.counts() {
			at = schedule.Earlier(at, b.lastOf(b.evidence).Add(bindingTTL))
		} else {
			at = schedule.Earlier(at, b.lastSeen().Add(bindingTTL))
			if p := e.penalties.of(b.holder.ID); p != nil && (p.until().After(now) || b.strongest(now) > b.evidence) {
				at = schedule.Earlier(at, p.until())
			}
		}
		if e.conflict == nil {
			at = schedule.Earlier(at, b.refreshDue())
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

// Before implements [schedule.Element]: by the next deadline and then by key, so that the order of effects is always the
// same.
func (e *entry) Before(o *entry) bool {
	if c := e.at.Compare(o.at); c != 0 {
		return c < 0
	}
	return e.key.Compare(o.key) < 0
}

// enough reports whether these holders make a conflict of this node: two of them conflict, and one is
// local.
func enough(list []*binding) bool {
	nodes := areNodes(list)
	return conflicting(list) && slices.ContainsFunc(list, func(b *binding) bool {
		return !b.remote && (!nodes || b.holder.Place == PlaceUplink)
	})
}

// conflicting reports whether two of these holders must not have the same address. Two nodes may, unless they have it on the segment that
// joins them; and nothing of what is claimed on another device is anybody's if all only claim it.
func conflicting(list []*binding) bool {
	if areNodes(list) {
		onSegment := 0
		for _, b := range list {
			if b.holder.Place == PlaceUplink {
				onSegment++
			}
		}
		return onSegment >= 2
	}
	return len(list) >= 2 && slices.ContainsFunc(list, func(b *binding) bool { return b.evidence != Claimed })
}

func compareBindings(a, b *binding) int {
	return cmp.Or(
		a.entry.key.Compare(b.entry.key),
		a.firstSeen.Compare(b.firstSeen),
		a.holder.ID.Compare(b.holder.ID),
	)
}

// counts reports whether the binding supports a suspicion.
func (b *binding) counts() bool { return b.evidence.Counts() }

func (b *binding) isLocal() bool { return !b.remote }

// has reports whether the holder has the address by what its node says, also one that is not heard on the segment.
func (b *binding) has() bool { return b.counts() || b.evidence == Forwarded && b.listed && b.remote }

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

// strongest returns the strongest evidence seen within the TTL; Forwarded if a penalty suppresses it, and 0
// if there is none.
func (b *binding) strongest(now time.Time) Evidence {
	for ev := Host; ev >= Forwarded; ev-- {
		if t := b.lastOf(ev); !t.IsZero() && now.Sub(t) < bindingTTL {
			if ev <= b.entry.penalties.suppressed(b.holder.ID, now) {
				return Forwarded
			}
			return ev
		}
	}
	return 0
}

// refreshDue returns when to probe a silent local binding next; zero for never. It is half the TTL after the last evidence that counts, and
// then three quarters, rounded up to full seconds, because waking the agent costs more than a probe.
func (b *binding) refreshDue() time.Time {
	if !b.counts() || b.remote || b.refresh.count >= 2 {
		return time.Time{}
	}
	var counted time.Time
	for ev := Claimed; ev <= Host; ev++ {
		counted = schedule.Later(counted, b.lastOf(ev))
	}
	after := bindingTTL / 4 * time.Duration(2+b.refresh.count)
	at := schedule.Later(counted.Add(after+b.refresh.jitter), b.refresh.after)
	if past := at.Sub(at.Truncate(time.Second)); past > 0 {
		at = at.Add(time.Second - past)
	}
	return at
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
	for i := range b.sources {
		if s := &b.sources[i]; s.last[b.evidence].After(best.last[b.evidence]) {
			best = s
		}
	}
	return best
}

// describe updates the description from the latest source.
func (b *binding) describe(h *Holder) {
	src := b.latestSource()
	b.holder.Interface = src.iface
	b.holder.InterfaceName = cmp.Or(src.name, b.holder.InterfaceName)
	if src.mac != (MAC{}) {
		b.holder.MAC = src.mac
	}
	if h == nil {
		return
	}
	b.holder.NetnsName = cmp.Or(h.NetnsName, b.holder.NetnsName)
	b.holder.Place = h.Place
	if b.holder.Bridge = cmp.Or(h.Bridge, b.holder.Bridge); !b.remote {
		b.holder.Bridge = h.Bridge // it may have left one
	}
	if h.Pod != (Pod{}) {
		b.holder.describePod(h)
	}
}

// describePod copies the workload of another description.
func (h *Holder) describePod(from *Holder) {
	h.Pod, h.CreatedAt, h.Sandbox, h.Given = from.Pod, from.CreatedAt, from.Sandbox, from.Given
}

// shown is the evidence as others see it.
func (b *binding) shown() Evidence {
	if b.evidence == Forwarded && b.listed {
		return Silent
	}
	return b.evidence
}

// public returns the binding as a copy for callers of the package.
func (b *binding) public() Binding {
	return Binding{
		Key: b.entry.key, Holder: b.holder, Evidence: b.shown(),
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

// because returns the reason of a template with the holder's name. arg replaces a %s at its end.
func (b *binding) because(t *template, arg string) string {
	if reason, ok := strings.CutSuffix(t.reason, "%s"); ok {
		return b.String() + " " + reason + arg
	}
	return b.String() + " " + t.reason
}

// lease is what other nodes know of a binding. The zero value means that they know nothing.
type lease struct {
	mac         MAC
	evidence    Evidence
	place       Place
	occurrences int
}

// lease returns what other nodes have to know of a binding.
func (b *binding) lease() lease {
	if b.remote || !b.counts() || b.entry.shared {
		return lease{}
	}
	return lease{b.holder.MAC, b.evidence, b.holder.Place, b.entry.occurrences}
}
