// Package lease is a holder's side of the leases: what this node has leased, who keeps it, and who has to
// be informed when.
//
// It knows neither what a lease is good for nor how it travels. It does no I/O, has no goroutine and reads no
// clock.
package lease

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/rank"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
)

const (
	// MaxLeases bounds the leases of one node: a keeper accepts no more from one.
	MaxLeases = 16384
	// MaxWaiting bounds those that wait for room: as many as an agent knows by default.
	MaxWaiting = 65536

	// Leases are refreshed after refreshAfter on average, refreshSpread more or less, so that a keeper
	// forgets none that is lost twice.
	refreshAfter  = 120 * time.Second
	refreshSpread = refreshAfter / 4
	// moveSpread is within what time a new keeper is informed: all nodes have something to tell it.
	moveSpread = 5 * time.Second
	// firstSpread is the same where no other node knows the lease yet: a node that was alone is in a hurry,
	// and there are not many of them.
	firstSpread = 500 * time.Millisecond
)

// leasePolicy never gives up: after a partition that the members did not notice nobody waits for longer than
// five seconds. goneFor is how long a withdrawal is sent to keepers that do not acknowledge it.
var (
	leasePolicy = retry.Policy{Pauses: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}}
	gonePolicy  = retry.Policy{Pauses: leasePolicy.Pauses, GiveUp: 60 * time.Second}
)

// ID identifies a lease.
type ID struct {
	Key    detector.Key
	Holder detector.HolderID
}

// Message is a lease to be sent to a keeper, which may be this node itself.
type Message struct {
	id      ID
	Binding cluster.Binding
	Gone    bool // it has ended
}

// ID implements retry.Message. It is an [ID].
func (m Message) ID() any { return m.id }

// Key is the address.
func (m Message) Key() detector.Key { return m.id.Key }

// Holder is the holder.
func (m Message) Holder() detector.HolderID { return m.id.Holder }

// Policy implements retry.Message.
func (m Message) Policy() retry.Policy {
	if m.Gone {
		return gonePolicy
	}
	return leasePolicy
}

// Table is all leases of this node. It is not safe for concurrent use.
type Table struct {
	roster   *roster.Roster
	queue    *retry.Queue
	replicas int
	leases   map[ID]*lease
	keys     map[detector.Key][]*lease
	waiting  map[ID]cluster.Binding // for room
}

type lease struct {
	Message
	hash    uint64
	keepers []keeper // by rank
}

// keeper is a node that keeps a lease. It was informed if it may know some version of the lease.
type keeper struct {
	rank.Pick[*roster.Node]
	informed bool
}

// New returns an empty table, which puts its messages into a queue. Keepers are chosen from the ring of the
// roster.
func New(r *roster.Roster, q *retry.Queue, replicas int) *Table {
	return &Table{
		roster: r, queue: q, replicas: replicas,
		leases: make(map[ID]*lease), keys: make(map[detector.Key][]*lease), waiting: make(map[ID]cluster.Binding),
	}
}

// Len returns the number of leases.
func (t *Table) Len() int { return len(t.leases) }

// Full reports that some leases wait for room: their keepers are not informed.
func (t *Table) Full() bool { return len(t.waiting) > 0 }

// Has reports whether this node has a lease of a key that does not wait.
func (t *Table) Has(k detector.Key) bool { return len(t.keys[k]) > 0 }

// Live reports whether there is a lease of a holder.
func (t *Table) Live(id ID) bool {
	_, waits := t.waiting[id]
	return waits || t.leases[id] != nil
}

// Keeps reports whether a node is to keep a lease of a key.
func (t *Table) Keeps(n *roster.Node, k detector.Key) bool {
	return slices.ContainsFunc(t.keys[k], func(l *lease) bool { return l.keeper(n) != nil })
}

func (l *lease) keeper(n *roster.Node) *keeper {
	if i := slices.IndexFunc(l.keepers, func(k keeper) bool { return k.Node == n }); i >= 0 {
		return &l.keepers[i]
	}
	return nil
}

// Set makes a lease or changes it. Its keepers are informed at once or, if there are too many leases, when there
// is room for it. It returns false if too many wait already.
func (t *Table) Set(key detector.Key, b cluster.Binding, now time.Time) bool {
	id := ID{key, b.Holder.ID}
	l := t.leases[id]
	switch {
	case l == nil && len(t.leases) >= MaxLeases:
		_, waits := t.waiting[id]
		if waits || len(t.waiting) < MaxWaiting {
			t.waiting[id] = b
			waits = true
		}
		return waits
	case l == nil:
		l = &lease{Message: Message{id: id}, hash: rank.KeyHash(key)}
		t.leases[id] = l
		delete(t.waiting, id)
		t.keys[key] = append(t.keys[key], l)
		l.Binding = b
		for _, p := range t.choose(l) {
			l.keepers = append(l.keepers, keeper{Pick: p})
		}
	case same(l.Binding, b):
		l.Binding = b
		return true
	}
	l.Binding = b
	for i := range l.keepers {
		t.inform(l, &l.keepers[i], now, now)
	}
	return true
}

// same reports that a keeper need not be informed of a change.
func same(a, b cluster.Binding) bool {
	return a.Holder.MAC == b.Holder.MAC && a.Evidence == b.Evidence &&
		a.Occurrences == b.Occurrences && a.FirstSeen.Equal(b.FirstSeen)
}

// Withdraw ends a lease, and reports whether there was one.
func (t *Table) Withdraw(id ID, now time.Time) bool {
	delete(t.waiting, id)
	l := t.leases[id]
	if l == nil {
		return false
	}
	delete(t.leases, id)
	rest := slices.DeleteFunc(t.keys[id.Key], func(other *lease) bool { return other == l })
	if t.keys[id.Key] = rest; len(rest) == 0 {
		delete(t.keys, id.Key)
	}
	l.Gone = true
	for _, k := range l.keepers {
		// Who was never informed need not know that it is over.
		if t.queue.Remove(k.Node, id) || k.informed {
			t.queue.Put(k.Node, l.Message, now, now)
		}
	}
	for id, b := range t.waiting { // any of them
		t.Set(id.Key, b, now)
		break
	}
	return true
}

// inform has a keeper informed of a lease at a time.
func (t *Table) inform(l *lease, k *keeper, at, now time.Time) {
	if t.queue.Remove(k.Node, l.id) {
		k.informed = true
	}
	t.queue.Put(k.Node, l.Message, at, now)
}

// Acked notes that a keeper knows a lease, which is refreshed later.
func (t *Table) Acked(from *roster.Node, m Message, now time.Time) {
	l := t.leases[m.id]
	if l == nil {
		return
	}
	if k := l.keeper(from); k != nil {
		k.informed = true
		t.queue.Put(from, l.Message, now.Add(refreshAfter-refreshSpread+rand.N(2*refreshSpread)), now)
	}
}

// Resend has all leases sent again at once, or those that one node keeps: it may have lost them.
func (t *Table) Resend(to *roster.Node, now time.Time) {
	for _, l := range t.leases {
		for i := range l.keepers {
			if k := &l.keepers[i]; to == nil || k.Node == to {
				t.inform(l, k, now, now)
			}
		}
	}
}

// Came notes that a node is in the ring. It keeps the keys for which it ranks among the first; whoever ranked
// last there keeps them no more, which nobody need be told: what a former keeper knows expires.
func (t *Table) Came(n *roster.Node, now time.Time) {
	for _, l := range t.leases {
		if l.keeper(n) != nil {
			continue
		}
		score := rank.Score(n.Seed, l.hash)
		if last := len(l.keepers) - 1; last+1 >= t.replicas && l.keepers[last].Score >= score {
			continue
		}
		t.move(l, now)
	}
}

// Renewed notes that a keeper's agent is another incarnation: it knows nothing.
func (t *Table) Renewed(n *roster.Node, now time.Time) {
	for _, l := range t.leases {
		if k := l.keeper(n); k != nil {
			k.informed = false
			t.later(l, k, now)
		}
	}
}

// Went notes that a node is in the ring no more, and its messages are removed. Others take its place.
func (t *Table) Went(n *roster.Node, now time.Time) {
	for _, l := range t.leases {
		if l.keeper(n) != nil {
			t.move(l, now)
		}
	}
}

// move chooses the keepers of a lease again. Those that it has already stay as they are.
func (t *Table) move(l *lease, now time.Time) {
	before := l.keepers
	l.keepers = make([]keeper, 0, t.replicas)
	var added []*keeper
	for _, p := range t.choose(l) {
		i := slices.IndexFunc(before, func(k keeper) bool { return k.Node == p.Node })
		if i >= 0 {
			l.keepers = append(l.keepers, before[i])
			continue
		}
		l.keepers = append(l.keepers, keeper{Pick: p})
		added = append(added, &l.keepers[len(l.keepers)-1])
	}
	for _, k := range before {
		if l.keeper(k.Node) == nil {
			t.queue.Remove(k.Node, l.id)
		}
	}
	for _, k := range added {
		t.later(l, k, now)
	}
}

func (t *Table) choose(l *lease) []rank.Pick[*roster.Node] {
	return t.roster.Ring.Pick(nil, l.hash, t.replicas)
}

// later informs a keeper soon. If it is this node there is nothing to wait for.
func (t *Table) later(l *lease, k *keeper, now time.Time) {
	self, spread := t.roster.Self(), firstSpread
	for _, o := range l.keepers {
		if o.informed && o.Node != self && o.Node != k.Node {
			spread = moveSpread
		}
	}
	at := now
	if k.Node != self {
		at = now.Add(rand.N(spread))
	}
	t.inform(l, k, at, now)
}
