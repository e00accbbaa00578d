package members

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxMembers is how many may be there at once. More are refused.
	maxMembers = 16384
	// Members that are gone are shown for goneFor, the latest maxGone of them.
	goneFor = 10 * time.Minute
	maxGone = 1024
)

// entry is what is known of one member.
type entry struct {
	Member
	at    netip.AddrPort
	route memberlist.Node
	// present says that memberlist has it for alive or suspect. It may be replaced all the
	// same: dead, because another has its place.
	present, replaced bool
	// unsure says that it is not known yet whether it left or died.
	unsure bool
	// successor: it took the place of another incarnation of its node's agent.
	successor bool
	// told says that the handler takes it for a member, again that there is more to tell,
	// dirty that it is on the list of those to tell of.
	told, again, dirty bool
}

func (e *entry) here() bool { return e.present && !e.replaced }

// table is who is there. It may be used by several goroutines at once. As memberlist
// calls into it under its own lock, nothing here may call memberlist.
type table struct {
	mu      sync.Mutex
	self    Member
	entries map[wire.MemberID]*entry
	count   int // of those that are here
	// nodes and places index those that are here, by NodeID and by address.
	nodes  map[string][]*entry
	places map[netip.AddrPort][]*entry
	gone   []wire.MemberID // in the order they went; some may be back

	dirty   []*entry
	wake    chan struct{}
	contest chan [2]wire.MemberID // pairs at one address: one is not there any more
}

func newTable(self Member) *table {
	self.Self, self.State, self.Since = true, cluster.Alive, time.Now()
	self.joined = self.Since
	return &table{
		self:    self,
		entries: map[wire.MemberID]*entry{},
		nodes:   map[string][]*entry{},
		places:  map[netip.AddrPort][]*entry{},
		wake:    make(chan struct{}, 1),
		contest: make(chan [2]wire.MemberID, 64),
	}
}

// locate sets this agent's own address, before it knows any other.
func (t *table) locate(at netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.self.Address = at.String()
}

func (t *table) me() Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.self
}

// live counts the members that are there, with this one.
func (t *table) live() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count + 1
}

// refuses says whether a member is one more than may be there.
func (t *table) refuses(id wire.MemberID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count < maxMembers || id == t.self.ID {
		return false
	}
	e := t.entries[id]
	return e == nil || !e.present
}

// route is how to send to a member that is there.
func (t *table) route(id wire.MemberID) (memberlist.Node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil || !e.here() {
		return memberlist.Node{}, false
	}
	return e.route, true
}

// lostAt returns where a member was that died.
func (t *table) lostAt(id wire.MemberID) (netip.AddrPort, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil || e.present || e.State != cluster.Dead {
		return netip.AddrPort{}, false
	}
	return e.at, true
}

// knows says whether a member is or was there.
func (t *table) knows(id wire.MemberID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[id] != nil || id == t.self.ID
}

// joined notes that memberlist takes a member for alive.
func (t *table) joined(member Member, at netip.AddrPort, node *memberlist.Node, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if member.ID == t.self.ID {
		return
	}
	e := t.entries[member.ID]
	if e == nil {
		e = &entry{}
		t.entries[member.ID] = e
	}
	if e.here() {
		t.unlist(e)
	}
	member.Address, member.State, member.Since, member.joined = at.String(), cluster.Alive, now, now
	member.LastReceived = e.LastReceived
	e.Member, e.at = member, at
	// What sending needs; the metadata is in the Member.
	e.route = memberlist.Node{Name: node.Name, Addr: slices.Clone(node.Addr), Port: node.Port, PMax: node.PMax}
	e.present, e.replaced, e.unsure = true, false, false
	t.list(e)
	t.compare(e, now)
	t.mark(e)
}

// compare looks for others that a newcomer replaces, or that replaced it.
func (t *table) compare(e *entry, now time.Time) {
	// Whoever had our address is not there any more: likely it was this agent, before the
	// node or the agent started again.
	if e.Address == t.self.Address || (e.NodeID() == t.self.NodeID() && e.Epoch < t.self.Epoch) {
		t.replace(e, now)
		return
	}
	for _, other := range slices.Clone(t.nodes[e.NodeID()]) {
		switch {
		case other.Epoch < e.Epoch:
			t.replace(other, now)
			e.successor = true
		case other.Epoch > e.Epoch:
			t.replace(e, now)
			return
		}
	}
	// One of two at one address is gone, but nothing says which: word of the older may
	// come last.
	for _, other := range t.places[e.at] {
		if other != e {
			select {
			case t.contest <- [2]wire.MemberID{e.ID, other.ID}:
			default: // memberlist will find it dead
			}
		}
	}
}

// replace takes a member for dead because another has its place.
func (t *table) replace(e *entry, now time.Time) {
	t.unlist(e)
	e.replaced = true
	t.end(e, now)
}

// restore gives its place back to whom a member replaced that is gone: unlike a former
// agent, one whose place somebody else took is still there. If it is not, memberlist will
// find out.
func (t *table) restore(gone *entry, now time.Time) {
	if !gone.successor || len(t.nodes[gone.NodeID()]) > 0 {
		return
	}
	gone.successor = false
	var back *entry
	for _, e := range t.entries {
		if e.present && e.replaced && e != gone && e.NodeID() == gone.NodeID() && e.Address != t.self.Address &&
			(back == nil || e.Epoch > back.Epoch) {
			back = e
		}
	}
	if back == nil {
		return
	}
	back.State, back.Since, back.replaced, back.successor = cluster.Alive, now, false, true
	t.list(back)
	t.mark(back)
}

// lost takes the first of two members at one address for dead, if both are there.
func (t *table) lost(id, to wire.MemberID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, winner := t.entries[id], t.entries[to]
	if e != nil && e.here() && winner != nil && winner.here() && e.at == winner.at {
		t.replace(e, now)
	}
}

// updated notes that a member says something else of itself.
func (t *table) updated(member Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[member.ID]; e != nil && e.here() {
		e.Version, e.again = member.Version, true
		t.mark(e)
	}
}

// left notes that memberlist takes a member for dead or left.
func (t *table) left(id wire.MemberID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil || !e.present {
		return
	}
	was := e.here()
	if was {
		t.unlist(e)
	}
	e.present = false
	if was {
		e.unsure = true
		t.end(e, now)
	}
}

// end makes an entry one of the gone. It is dead until something else is known.
func (t *table) end(e *entry, now time.Time) {
	e.State, e.Since = cluster.Dead, now
	t.gone = append(t.gone, e.ID)
	t.mark(e)
}

// expire drops those that went long ago.
func (t *table) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.gone) > 0 {
		e := t.entries[t.gone[0]]
		if e != nil && !e.here() && now.Sub(e.Since) < goneFor {
			return
		}
		t.drop()
	}
}

// drop forgets the first of the gone, unless it is back.
func (t *table) drop() {
	if e := t.entries[t.gone[0]]; e != nil && !e.here() {
		delete(t.entries, e.ID)
	}
	t.gone = t.gone[1:]
}

func (t *table) list(e *entry) {
	t.count++
	t.nodes[e.NodeID()] = append(t.nodes[e.NodeID()], e)
	t.places[e.at] = append(t.places[e.at], e)
}

func (t *table) unlist(e *entry) {
	t.count--
	without(t.nodes, e.NodeID(), e)
	without(t.places, e.at, e)
}

func without[K comparable](index map[K][]*entry, key K, e *entry) {
	rest := slices.DeleteFunc(index[key], func(other *entry) bool { return other == e })
	if len(rest) == 0 {
		delete(index, key)
		return
	}
	index[key] = rest
}

// mark puts an entry on the list of those to tell of.
func (t *table) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, e)
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// addresses are where the members are that are there, in no order.
func (t *table) addresses() map[netip.AddrPort]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := make(map[netip.AddrPort]bool, len(t.places))
	for place := range t.places {
		at[place] = true
	}
	return at
}

// occupied says whether a member that is there has an address.
func (t *table) occupied(at netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.places[at]) > 0
}

// heardFrom notes that a member answered.
func (t *table) heardFrom(id wire.MemberID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[id]; e != nil {
		e.LastReceived = now
	}
}
