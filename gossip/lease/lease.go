// Package lease is a holder's side of the leases: what this node has leased, who keeps it, and who has to
// be informed when.
//
// It knows neither what a lease is good for nor how it travels. It does no I/O, has no goroutine and reads no clock.
package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
)

const (
	// MaxLeases bounds the leases of one node, as many as an agent knows by default.
	MaxLeases = 65536

	// Leases are refreshed after refreshAfter on average, refreshSpread more or less, so that a keeper
	// forgets none that is lost twice.
	refreshAfter  = 120 * time.Second
	refreshSpread = refreshAfter / 4
	// moveSpread is within what time a new keeper is informed: all nodes have leases for it.
	moveSpread = 5 * time.Second
	// firstSpread is the same where no other node knows the lease yet: a node that was alone is in a hurry,
	// and there are not many of them.
	firstSpread = 500 * time.Millisecond
)

// leasePolicy never gives up: after a partition that the members did not notice nobody waits for longer than
// five seconds. gonePolicy is that of withdrawals; what their keepers do not get to know expires there.
var (
	leasePolicy = &retry.Policy{Pauses: []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}}
	gonePolicy  = &retry.Policy{Pauses: leasePolicy.Pauses, GiveUp: 60 * time.Second, Max: 32768, Urgent: true}
)

// ID identifies a lease.
type ID struct {
	Key    detector.Key
	Holder detector.HolderID
}

// Lease is a lease of this node, and the message to its keepers, one of which may be this node itself.
type Lease struct {
	ID
	Binding cluster.Binding
	Gone    bool // it has ended

	hash    uint64
	keepers []keeper // by rank
}

// keeper is a node that keeps a lease. It was informed if it may know some version of the lease.
type keeper struct {
	*roster.Node
	informed bool
}

// Identity implements [retry.Message]. It is an [ID].
func (l *Lease) Identity() any { return l.ID }

// Policy implements [retry.Message].
func (l *Lease) Policy() *retry.Policy {
	if l.Gone {
		return gonePolicy
	}
	return leasePolicy
}

// Table is all leases of this node. It is not safe for concurrent use.
type Table struct {
	roster   *roster.Roster
	queue    *retry.Queue
	replicas int
	random   func(time.Duration) time.Duration
	leases   map[ID]*Lease
	keys     map[detector.Key][]*Lease
}

// New returns an empty table, which puts its messages into a queue. Keepers are chosen from the roster. random returns a duration from 0 to
// less than its argument.
func New(r *roster.Roster, q *retry.Queue, replicas int, random func(time.Duration) time.Duration) *Table {
	return &Table{roster: r, queue: q, replicas: replicas, random: random, leases: make(map[ID]*Lease), keys: make(map[detector.Key][]*Lease)}
}

// Len returns the number of leases.
func (t *Table) Len() int { return len(t.leases) }

// Has reports whether this node has a lease of a key.
func (t *Table) Has(k detector.Key) bool { return len(t.keys[k]) > 0 }

// Live reports whether there is a lease of a holder.
func (t *Table) Live(id ID) bool { return t.leases[id] != nil }

// Keeps reports whether a node is to keep a lease of a key.
func (t *Table) Keeps(n *roster.Node, k detector.Key) bool {
	return slices.ContainsFunc(t.keys[k], func(l *Lease) bool { return l.keeper(n) != nil })
}

func (l *Lease) keeper(n *roster.Node) *keeper {
	if i := slices.IndexFunc(l.keepers, func(k keeper) bool { return k.Node == n }); i >= 0 {
		return &l.keepers[i]
	}
	return nil
}

// Set makes a lease or changes it, and informs its keepers. It returns false if there are too many.
func (t *Table) Set(key detector.Key, b cluster.Binding, now time.Time) bool {
	id := ID{key, b.Holder.ID}
	l := t.leases[id]
	switch {
	case l == nil && len(t.leases) >= MaxLeases:
		return false
	case l == nil:
		l = &Lease{ID: id, Binding: b, hash: roster.KeyHash(key)}
		for _, n := range t.roster.Keepers(l.hash, t.replicas) {
			l.keepers = append(l.keepers, keeper{Node: n})
		}
		t.leases[id] = l
		t.keys[key] = append(t.keys[key], l)
	case l.Binding.Like(&b) && l.Binding.FirstSeen.Equal(b.FirstSeen):
		l.Binding = b
		return true
	}
	l.Binding = b
	for i := range l.keepers {
		t.inform(l, &l.keepers[i], 0, now)
	}
	return true
}

// Withdraw ends a lease, and informs its keepers and other nodes, also if there was none. It returns how many are not
// informed, because too many withdrawals wait.
func (t *Table) Withdraw(id ID, others []*roster.Node, now time.Time) (uninformed int) {
	l := t.leases[id]
	if l == nil {
		l = &Lease{ID: id, Binding: cluster.Binding{Holder: detector.Holder{ID: id.Holder}}}
	}
	delete(t.leases, id)
	rest := slices.DeleteFunc(t.keys[id.Key], func(other *Lease) bool { return other == l })
	if t.keys[id.Key] = rest; len(rest) == 0 {
		delete(t.keys, id.Key)
	}
	for i := range l.keepers {
		t.forget(l, &l.keepers[i])
	}
	l.Gone = true
	var all []*roster.Node
	for _, k := range l.keepers {
		if k.informed { // who never was need not know that it is over
			all = append(all, k.Node)
		}
	}
	for _, n := range append(all, others...) {
		if !t.queue.Put(n, l, 0, now) {
			uninformed++
		}
	}
	return uninformed
}

// inform has a keeper informed of a lease after a time.
func (t *Table) inform(l *Lease, k *keeper, wait time.Duration, now time.Time) {
	t.forget(l, k)
	t.queue.Put(k.Node, l, wait, now)
}

// forget removes what waits for a keeper, and notes if that says that it knows some version of the lease.
func (t *Table) forget(l *Lease, k *keeper) {
	m, sent := t.queue.Remove(k.Node, l.ID)
	if before, ok := m.(*Lease); ok && (sent || before.Gone) {
		k.informed = true
	}
}

// Acked notes that a keeper knows a lease, which is refreshed later.
func (t *Table) Acked(from *roster.Node, l *Lease, now time.Time) {
	t.queue.Remove(from, l.ID)
	if k := l.keeper(from); k != nil && !l.Gone {
		k.informed = true
		t.queue.Put(from, l, refreshAfter-refreshSpread+t.random(2*refreshSpread), now)
	}
}

// those returns the leases that are so, in the order of their keys, so that the same happens each time.
func (t *Table) those(are func(*Lease) bool) (list []*Lease) {
	for _, l := range t.leases {
		if are(l) {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *Lease) int { return cmp.Or(a.Key.Compare(b.Key), a.Holder.Compare(b.Holder)) })
	return list
}

// Resend has all leases sent again at once, or those that one node keeps: it may have lost them.
func (t *Table) Resend(to *roster.Node, now time.Time) {
	for _, l := range t.those(func(l *Lease) bool { return to == nil || l.keeper(to) != nil }) {
		for i := range l.keepers {
			if k := &l.keepers[i]; to == nil || k.Node == to {
				t.inform(l, k, 0, now)
			}
		}
	}
}

// ResendKey has the leases of one key sent again at once.
func (t *Table) ResendKey(key detector.Key, now time.Time) {
	for _, l := range t.keys[key] {
		for i := range l.keepers {
			t.inform(l, &l.keepers[i], 0, now)
		}
	}
}

// Moved notes that an agent is there, or not any more and its messages are removed. It keeps the keys for which it ranks
// among the first. One that comes takes the place of the one that ranked last there, which need not be informed: what a
// former keeper knows expires.
func (t *Table) Moved(n *roster.Node, now time.Time) {
	for _, l := range t.those(func(l *Lease) bool {
		last := len(l.keepers) - 1
		return l.keeper(n) != nil || last+1 < t.replicas || n.Score(l.hash) >= l.keepers[last].Score(l.hash)
	}) {
		t.move(l, now)
	}
}

// Renewed notes that a keeper's agent is another incarnation: it knows nothing.
func (t *Table) Renewed(n *roster.Node, now time.Time) {
	for _, l := range t.those(func(l *Lease) bool { return l.keeper(n) != nil }) {
		k := l.keeper(n)
		k.informed = false
		t.later(l, k, now)
	}
}

// move chooses the keepers of a lease again. Those that it has already stay as they are.
func (t *Table) move(l *Lease, now time.Time) {
	before, nodes := l.keepers, t.roster.Keepers(l.hash, t.replicas)
	l.keepers = make([]keeper, len(nodes))
	for i, n := range nodes {
		l.keepers[i].Node = n
	}
	for _, k := range before {
		if still := l.keeper(k.Node); still != nil {
			*still = k
		} else {
			t.queue.Remove(k.Node, l.ID)
		}
	}
	for i := range l.keepers {
		if k := &l.keepers[i]; !slices.ContainsFunc(before, func(b keeper) bool { return b.Node == k.Node }) {
			t.later(l, k, now)
		}
	}
}

// later informs a keeper soon. If it is this node there is nothing to wait for.
func (t *Table) later(l *Lease, k *keeper, now time.Time) {
	self, wait := t.roster.Self(), t.random(firstSpread)
	for _, o := range l.keepers {
		if o.informed && o.Node != self && o.Node != k.Node {
			wait = t.random(moveSpread)
		}
	}
	if k.Node == self {
		wait = 0
	}
	t.inform(l, k, wait, now)
}
