// Package lease is a holder's side of the leases: what this node has leased, who keeps it,
// and who has to be told or told again when.
//
// It knows neither what a lease is good for nor how it travels. It does no I/O, has no
// goroutine and reads no clock.
package lease

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/rank"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// MaxLeases bounds the leases of one node, withdrawn ones that are still to be told
	// included: a keeper takes no more from one node.
	MaxLeases = 16384
	// MaxWaiting bounds those that wait for room: as many as an agent knows by default.
	MaxWaiting = 65536

	// Leases are refreshed after refreshAfter on average, refreshSpread more or less, so
	// that a keeper forgets none that is lost twice.
	refreshAfter  = 120 * time.Second
	refreshSpread = refreshAfter / 4
	// moveSpread is within what time a new keeper is told: all nodes have something to tell
	// it.
	moveSpread = 5 * time.Second
	// firstSpread is the same where no other node knows the lease yet: a node that was alone
	// is in a hurry, and there are not many of them.
	firstSpread = 500 * time.Millisecond
	// goneFor is how long a withdrawal is told to keepers that do not acknowledge it.
	goneFor = 60 * time.Second
	// lateAfter is after what time a keeper that did not acknowledge is worth a word.
	lateAfter = 5 * time.Second
	// grid is what times that are not urgent are rounded to, so that what goes to one
	// keeper goes together.
	grid = 250 * time.Millisecond
)

// pauses are those after each message that is not acknowledged: it is sent again 250 ms,
// 1 s and 4 s after the first, then every 5 s: after a cut that the members did not notice
// nobody waits for longer.
var pauses = [...]time.Duration{250 * time.Millisecond, 750 * time.Millisecond, 3 * time.Second, 5 * time.Second}

// ID names a lease.
type ID struct {
	Key    detector.Key
	Holder detector.HolderID
}

// Send is a lease to be told to a keeper, which may be this node itself.
type Send struct {
	To    *roster.Node
	Lease wire.Lease
}

// Table is all leases of this node. It is not safe for concurrent use.
type Table struct {
	roster   *roster.Roster
	replicas int
	start    time.Time
	seq      uint64
	leases   map[ID]*lease
	bySeq    map[uint64]*lease
	keys     map[detector.Key][]*lease // live ones
	live     int
	waiting  map[ID]cluster.Binding // for room
	queue    queue
}

type lease struct {
	id      ID
	hash    uint64
	claim   cluster.Binding
	seq     uint64
	gone    bool
	goneAt  time.Time
	keepers []keeper // by rank
	next    time.Time
	index   int // in the queue
}

// keeper is a node that keeps a lease, and what it knows of it.
type keeper struct {
	rank.Pick[*roster.Node]
	// told says that it may know some version of the lease.
	told bool
	// acked says that it knows the lease as it is; next is when it is told again.
	acked bool
	next  time.Time
	// tries counts the messages that were not acknowledged, the first of them at since.
	tries int
	since time.Time
}

// New returns an empty table. Keepers are picked from the ring of the roster.
//
// Versions begin anywhere, not far from zero because they travel: what a keeper acknowledged
// to a former agent of this node is hardly ever one of them.
func New(r *roster.Roster, replicas int, now time.Time) *Table {
	return &Table{
		roster: r, replicas: replicas, start: now, seq: rand.Uint64N(1 << 20),
		leases: make(map[ID]*lease), bySeq: make(map[uint64]*lease), keys: make(map[detector.Key][]*lease),
		waiting: make(map[ID]cluster.Binding),
	}
}

// Len returns the number of leases that are not withdrawn.
func (t *Table) Len() int { return t.live }

// Full says that some leases wait for room: their keepers are not told.
func (t *Table) Full() bool { return len(t.waiting) > 0 }

// Has says whether this node has a lease of a key that does not wait.
func (t *Table) Has(k detector.Key) bool { return len(t.keys[k]) > 0 }

// Keeps says whether a node is to keep a lease of a key.
func (t *Table) Keeps(n *roster.Node, k detector.Key) bool {
	return slices.ContainsFunc(t.keys[k], func(l *lease) bool {
		return slices.ContainsFunc(l.keepers, func(k keeper) bool { return k.Node == n })
	})
}

// Live says whether there is a lease of a holder that is not withdrawn.
func (t *Table) Live(id ID) bool {
	l := t.leases[id]
	_, waits := t.waiting[id]
	return waits || l != nil && !l.gone
}

// Set makes a lease or changes its claim. Its keepers are told at once or, if there are too
// many leases, when there is room for it. It returns false if too many wait already.
func (t *Table) Set(key detector.Key, c cluster.Binding, now time.Time) bool {
	id := ID{key, c.Holder.ID}
	l := t.leases[id]
	switch {
	case l == nil && len(t.leases) >= MaxLeases:
		_, waits := t.waiting[id]
		if waits || len(t.waiting) < MaxWaiting {
			t.waiting[id] = c
			waits = true
		}
		return waits
	case l == nil:
		l = &lease{id: id, hash: rank.KeyHash(key), gone: true, index: -1}
		t.leases[id] = l
		delete(t.waiting, id)
	case !l.gone && same(l.claim, c):
		l.claim = c
		return true
	}
	if l.gone {
		l.gone = false
		t.live++
		t.keys[key] = append(t.keys[key], l)
		t.pick(l, now)
	}
	l.claim = c
	t.changed(l, now)
	return true
}

// same says that a keeper need not be told of a change.
func same(a, b cluster.Binding) bool {
	return a.Holder.MAC == b.Holder.MAC && a.Evidence == b.Evidence &&
		a.Occurrences == b.Occurrences && a.FirstSeen.Equal(b.FirstSeen)
}

// Withdraw ends a lease, and says whether there was one.
func (t *Table) Withdraw(id ID, now time.Time) bool {
	delete(t.waiting, id)
	l := t.leases[id]
	if l == nil || l.gone {
		return false
	}
	l.gone, l.goneAt = true, now
	t.live--
	rest := slices.DeleteFunc(t.keys[id.Key], func(other *lease) bool { return other == l })
	if t.keys[id.Key] = rest; len(rest) == 0 {
		delete(t.keys, id.Key)
	}
	// Who was never told need not be told that it is over.
	l.keepers = slices.DeleteFunc(l.keepers, func(k keeper) bool { return !k.told })
	t.changed(l, now)
	return true
}

// changed gives a lease a new version, which all its keepers are to be told at once.
func (t *Table) changed(l *lease, now time.Time) {
	delete(t.bySeq, l.seq)
	t.seq++
	l.seq = t.seq
	t.bySeq[l.seq] = l
	for i := range l.keepers {
		k := &l.keepers[i]
		k.acked, k.tries, k.next, k.since = false, 0, now, now
	}
	t.schedule(l)
}

// Acked takes in that a keeper knows a lease.
func (t *Table) Acked(from *roster.Node, seq uint64, now time.Time) {
	l := t.bySeq[seq]
	if l == nil {
		return // it has changed since
	}
	for i := range l.keepers {
		if k := &l.keepers[i]; k.Node == from && k.tries > 0 {
			k.acked, k.tries = true, 0
			k.next = t.round(now.Add(refreshAfter - refreshSpread + rand.N(2*refreshSpread)))
		}
	}
	t.schedule(l)
}

// Due returns what is to be told now, n messages or a few more, and takes it for told. The
// slice dst is used again.
func (t *Table) Due(dst []Send, now time.Time, n int) []Send {
	for id, claim := range t.waiting {
		if len(t.leases) >= MaxLeases {
			break
		}
		t.Set(id.Key, claim, now)
	}
	for len(t.queue) > 0 && !t.queue[0].next.After(now) && len(dst) < n {
		l := t.queue[0]
		if l.gone && now.Sub(l.goneAt) >= goneFor {
			t.delete(l)
			continue
		}
		for i := range l.keepers {
			k := &l.keepers[i]
			if k.next.After(now) || k.acked && l.gone {
				continue
			}
			if k.acked || k.tries == 0 {
				k.acked, k.since = false, now
			}
			k.next = now.Add(pauses[min(k.tries, len(pauses)-1)])
			k.tries++
			k.told = true
			dst = append(dst, Send{k.Node, t.wire(l, now)})
		}
		t.schedule(l)
	}
	return dst
}

func (t *Table) wire(l *lease, now time.Time) wire.Lease {
	id := l.id.Holder
	w := wire.Lease{Seq: l.seq, Gone: l.gone, Key: l.id.Key, Claim: wire.Claim{Holder: wire.Holder{
		Member: t.roster.Self().Member, Netns: id.Netns, Ifindex: id.Ifindex, Generation: id.Generation,
	}}}
	if !l.gone {
		w.Claim.MAC, w.Claim.Evidence, w.Claim.Episodes = l.claim.Holder.MAC, l.claim.Evidence, l.claim.Occurrences
		w.Claim.FirstSeen = max(0, now.Sub(l.claim.FirstSeen))
	}
	return w
}

// Next returns when there is something to tell, zero for never.
func (t *Table) Next() time.Time {
	if len(t.waiting) > 0 && len(t.leases) < MaxLeases {
		return t.start
	}
	if len(t.queue) == 0 {
		return time.Time{}
	}
	return t.queue[0].next
}

// Unacked counts the leases that some keeper has not acknowledged for more than a few
// seconds, and by keeper.
func (t *Table) Unacked(now time.Time) (n int, by map[*roster.Node]int) {
	by = make(map[*roster.Node]int)
	for _, l := range t.leases {
		late := false
		for _, k := range l.keepers {
			if !k.acked && k.tries > 0 && now.Sub(k.since) > lateAfter {
				by[k.Node]++
				late = true
			}
		}
		if late {
			n++
		}
	}
	return n, by
}

// schedule puts a lease where it belongs in the queue, or ends it when all is told.
func (t *Table) schedule(l *lease) {
	l.next = time.Time{}
	for i := range l.keepers {
		k := &l.keepers[i]
		if (!l.gone || !k.acked) && (l.next.IsZero() || k.next.Before(l.next)) {
			l.next = k.next
		}
	}
	switch {
	case l.next.IsZero() && l.gone:
		t.delete(l)
	case l.next.IsZero():
		t.queue.remove(l)
	case l.index < 0:
		heap.Push(&t.queue, l)
	default:
		heap.Fix(&t.queue, l.index)
	}
}

func (t *Table) delete(l *lease) {
	t.queue.remove(l)
	delete(t.leases, l.id)
	delete(t.bySeq, l.seq)
}

// round rounds a time up to the grid.
func (t *Table) round(at time.Time) time.Time {
	d := at.Sub(t.start)
	return t.start.Add((d + grid - 1) / grid * grid)
}

// queue is a heap of leases by when they are due.
type queue []*lease

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	l := x.(*lease)
	l.index = len(*q)
	*q = append(*q, l)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	l.index = -1
	return l
}

func (q *queue) remove(l *lease) {
	if l.index >= 0 {
		heap.Remove(q, l.index)
	}
}
