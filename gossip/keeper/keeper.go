// Package keeper is what a keeper does: it remembers which holders of which nodes have an address leased, and
// when there are two says who is to be notified.
//
// It decides nothing: whether two holders are a conflict is for their own nodes to find out. It does no I/O,
// has no goroutine and reads no clock.
package keeper

import (
	"container/list"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// leaseTTL is how long a lease lives that is not refreshed, goneTTL how long a
	// withdrawal is remembered: a lease that was sent before may come after it.
	leaseTTL = 300 * time.Second
	goneTTL  = 60 * time.Second
	// notifyAgain is after how long a holder's node is notified again of others that it was notified of, when one
	// of them is refreshed. The acknowledgements of its own refreshments notify it more often.
	notifyAgain = 150 * time.Second

	// maxOthers is how many nodes with one key are all notified of each other. Those that come later are notified of
	// their neighbours only: one address on all nodes stays cheap, and everybody has somebody to verify it with.
	maxOthers = 8
	// maxHolders bounds the holders of one key, maxOfNode those of one node among them:
	// what else is on that node is for its own agent to find.
	maxHolders = 64
	maxOfNode  = 8
	// maxLeases bounds all leases, maxOfSender those of one node, maxGone the remembered withdrawals: the oldest
	// make room.
	maxLeases   = 262144
	maxOfSender = 65536
	maxGone     = 65536

	// Of one node acceptBurst leases and withdrawals are accepted at once, and acceptRate per second.
	acceptRate, acceptBurst = 1000, 5000
)

// Refusal says why a lease was not accepted. Unless it is [Refusal.Handled], such a lease is not acknowledged, so that its
// node sends it again later.
type Refusal string

// Handled reports whether nothing is gained if the node sends the lease again.
func (r Refusal) Handled() bool { return r == Accepted || r == Overfull || r == Forgotten }

// The refusals. Overfull: the address has too many holders; the lease was matched, but not kept. Forgotten: it has ended, and the end of
// another one was forgotten for it.
const (
	Accepted      Refusal = ""
	Overfull      Refusal = "too many holders of an address"
	Forgotten     Refusal = "too many ended leases"
	RefusedRate   Refusal = "lease rate of a node"
	RefusedSender Refusal = "too many leases of a node"
	RefusedAll    Refusal = "too many leases"
)

// Table is what one keeper knows. It is not safe for concurrent use.
type Table struct {
	roster  *roster.Roster
	entries map[detector.Key]*entry
	senders map[*roster.Node]*sender
	// Records live equally long in their list, so that a refreshed one goes to the end.
	leases list.List // those that have not ended
	gone   list.List // withdrawals
}

// entry is one key. Its records are in the order in which the holders came.
type entry struct {
	key     detector.Key
	records []*record
	live    int
	// turn goes round the records for those that are not kept.
	turn int
}

// sender is one node that has leases here.
type sender struct {
	node    *roster.Node
	records map[*record]struct{}
	leases  int // those of the records that have not ended
	accept  *rate.Limiter
}

// record is one lease, or the memory of its withdrawal.
type record struct {
	entry   *entry
	sender  *sender
	binding cluster.Binding
	epoch   int64
	seq     uint64
	gone    bool
	// received is when its node last sent the lease, notified when its node was last notified of others.
	received, notified time.Time
	expires            time.Time
	element            *list.Element // of leases or gone
}

// New returns an empty table. The nodes are those of the roster.
func New(r *roster.Roster) *Table {
	return &Table{roster: r, entries: make(map[detector.Key]*entry), senders: make(map[*roster.Node]*sender)}
}

// Len returns the number of leases.
func (t *Table) Len() int { return t.leases.Len() }

// Accept handles a lease or a withdrawal of a node. It returns the other holders, for the acknowledgement, and
// the nodes that are to be notified. If the lease is refused it is not to be acknowledged.
func (t *Table) Accept(from *roster.Node, l wire.Lease, now time.Time) (others wire.Notice, notify []*roster.Node, why Refusal) {
	s := t.sender(from)
	if !s.accept.AllowN(now, 1) {
		return wire.Notice{}, nil, RefusedRate
	}
	e := t.entries[l.Key]
	r := e.find(s, l.Binding.Holder.ID)
	// Only messages of the present incarnation of an agent are handled, so that another epoch is a new one.
	if r != nil && from.Epoch == r.epoch && (l.Seq < r.seq || l.Seq == r.seq && (r.gone || l.Gone)) {
		return wire.Notice{}, nil, Accepted // overtaken by a later one, or known
	}
	if e == nil {
		e = &entry{key: l.Key}
	}
	if l.Gone {
		return wire.Notice{}, nil, t.withdraw(e, s, r, l, now)
	}
	// A new agent of the same boot sends again what the former one sent.
	changed := r == nil || r.gone || !r.binding.Like(&l.Binding)
	if r == nil || r.gone {
		switch {
		case s.leases >= maxOfSender:
			return wire.Notice{}, nil, RefusedSender
		case t.leases.Len() >= maxLeases:
			return wire.Notice{}, nil, RefusedAll
		case !t.room(e, s, &l.Binding):
			return t.matchOnly(e, s, &l.Binding), nil, Overfull
		}
		if r != nil {
			t.drop(r) // it comes anew, behind the others
		}
		r = t.add(e, s, false)
	}
	r.epoch, r.seq, r.binding, r.received = from.Epoch, l.Seq, l.Binding, now
	r.expires = now.Add(leaseTTL)
	t.leases.MoveToBack(r.element)
	others, notify = t.match(r, changed, now)
	return others, notify, Accepted
}

// withdraw remembers that a lease has ended, also one that never came.
func (t *Table) withdraw(e *entry, s *sender, r *record, l wire.Lease, now time.Time) (why Refusal) {
	if r != nil {
		t.drop(r)
	}
	if t.gone.Len() >= maxGone {
		t.drop(t.gone.Front().Value.(*record))
		why = Forgotten
	}
	if len(e.records)-e.live >= maxHolders {
		t.drop(e.records[slices.IndexFunc(e.records, func(r *record) bool { return r.gone })])
		why = Forgotten
	}
	r = t.add(e, s, true)
	r.binding, r.epoch, r.seq, r.expires = l.Binding, s.node.Epoch, l.Seq, now.Add(goneTTL)
	return why
}

// room makes room for another holder of a key, and says whether there is. Withdrawals do not
// take up room of leases; pods go before hosts, and the living before the dead.
func (t *Table) room(e *entry, s *sender, b *cluster.Binding) bool {
	ofNode, former := 0, (*record)(nil)
	for _, r := range e.records {
		if r.sender == s && !r.gone {
			if ofNode++; r.epoch != s.node.Epoch {
				former = r
			}
		}
	}
	switch {
	case ofNode >= maxOfNode && former != nil:
		t.drop(former) // the new agent has not leased it again
		return true
	case ofNode >= maxOfNode:
		return false
	case e.live < maxHolders:
		return true
	}
	i := slices.IndexFunc(e.records, func(r *record) bool {
		return !r.gone && (!r.sender.node.Alive() || r.binding.Evidence == detector.Host && b.Evidence != detector.Host)
	})
	if i >= 0 {
		t.drop(e.records[i])
	}
	return i >= 0
}

// Single returns leases of addresses that one holder has: a pod of another node, whose agent is there. There are at most so many, in no order.
func (t *Table) Single(most int) (list []cluster.Lease) {
	for key, e := range t.entries {
		if len(list) == most {
			break
		}
		if e.live != 1 {
			continue
		}
		r := e.records[slices.IndexFunc(e.records, func(r *record) bool { return !r.gone })]
		if n := r.sender.node; n.Alive() && n != t.roster.Self() && r.binding.Evidence != detector.Host {
			list = append(list, cluster.Lease{Key: key, Binding: r.binding})
		}
	}
	return list
}

// Forget forgets a node.
func (t *Table) Forget(n *roster.Node) {
	if s := t.senders[n]; s != nil {
		for r := range s.records {
			t.drop(r)
		}
		delete(t.senders, n)
	}
}

// Expire ends what is over, and returns when there is more to expire, zero for never.
func (t *Table) Expire(now time.Time) (next time.Time) {
	for _, l := range []*list.List{&t.leases, &t.gone} {
		for e := l.Front(); e != nil; e = l.Front() {
			r := e.Value.(*record)
			if r.expires.After(now) {
				next = schedule.Earlier(next, r.expires)
				break
			}
			t.drop(r)
		}
	}
	return next
}

func (t *Table) sender(n *roster.Node) *sender {
	s := t.senders[n]
	if s == nil {
		s = &sender{node: n, records: make(map[*record]struct{}), accept: rate.NewLimiter(acceptRate, acceptBurst)}
		t.senders[n] = s
	}
	return s
}

// find returns the record of a holder, or nil.
func (e *entry) find(s *sender, id detector.HolderID) *record {
	if e == nil {
		return nil
	}
	for _, r := range e.records {
		if r.sender == s && r.binding.Holder.ID == id {
			return r
		}
	}
	return nil
}

// add adds a record to a key, which is there from then on.
func (t *Table) add(e *entry, s *sender, gone bool) *record {
	r := &record{entry: e, sender: s, gone: gone}
	e.records = append(e.records, r)
	s.records[r] = struct{}{}
	t.entries[e.key] = e
	if gone {
		r.element = t.gone.PushBack(r)
	} else {
		r.element = t.leases.PushBack(r)
		e.live++
		s.leases++
	}
	return r
}

// drop forgets a record, and its key with the last one.
func (t *Table) drop(r *record) {
	e := r.entry
	e.records = slices.DeleteFunc(e.records, func(o *record) bool { return o == r })
	if len(e.records) == 0 {
		delete(t.entries, e.key)
	}
	delete(r.sender.records, r)
	if r.gone {
		t.gone.Remove(r.element)
	} else {
		t.leases.Remove(r.element)
		e.live--
		r.sender.leases--
	}
}
