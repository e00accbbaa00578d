// Package keeper is what a keeper does: it remembers which holders of which nodes have an
// address leased, and when there are two says who is to be told.
//
// It is a matchmaker without a judgement: whether two holders are a conflict is for their
// own nodes to find out. It does no I/O, has no goroutine and reads no clock.
package keeper

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// leaseTTL is how long a lease lives that is not refreshed, goneTTL how long a
	// withdrawal is remembered: a lease that was sent before may come after it.
	leaseTTL = 300 * time.Second
	goneTTL  = 60 * time.Second
	// renewWithin is how long a new incarnation of an agent has to tell again what its
	// predecessor told.
	renewWithin = 10 * time.Second
	// tellAgain is after how long a holder's node is told again of rivals that it was told
	// of, when one of them is refreshed.
	tellAgain = 30 * time.Second

	// maxClaims is how many holders of one key are all told of each other. Those that come
	// later are told of their neighbours only: one address on all nodes stays cheap, and
	// everybody has somebody to verify it with.
	maxClaims = 8
	// maxHolders bounds the holders of one key, maxOfNode those of one node among them:
	// what else is on that node is for its own agent to find.
	maxHolders = 64
	maxOfNode  = 8
	// maxLeases bounds all leases and remembered withdrawals, maxOfSender those of one
	// node.
	maxLeases   = 262144
	maxOfSender = 16384

	// A node may tell takeBurst leases at once and takeRate per second, and is told as
	// many rivals.
	takeRate, takeBurst = 1000, 5000
	tellRate, tellBurst = 500, 2000
)

// Refusal says why a lease was not taken in. Such a lease is not acknowledged, so that its
// node tells it again later.
type Refusal string

// The refusals.
const (
	Taken          Refusal = ""
	RefusedRate    Refusal = "lease rate of a node"
	RefusedSender  Refusal = "too many leases of a node"
	RefusedAll     Refusal = "too many leases"
	RefusedTelling Refusal = "rival rate of a node"
)

// Tell is a message to the node of a holder.
type Tell struct {
	To    *roster.Node
	Rival wire.Rival
	// News: it is the first that the node hears of it, as far as is known.
	News bool
}

// Table is what one keeper knows. It is not safe for concurrent use.
type Table struct {
	roster   *roster.Roster
	entries  map[detector.Key]*entry
	senders  map[*roster.Node]*sender
	leases   queue // live ones
	gone     queue // withdrawals
	renewals []renewal
	// Overfull counts the leases that were matched, but not kept, because their key has too
	// many holders.
	Overfull uint64
}

// entry is one key. Its records are in the order in which the holders came.
type entry struct {
	key     detector.Key
	records []*record
	live    int
	// turn goes round the records for those that are not kept.
	turn int
}

// sender is one node that has leases here or is told of rivals.
type sender struct {
	node    *roster.Node
	records map[*record]struct{}
	take    *rate.Limiter
	tell    *rate.Limiter
	// renewing: it is among the renewals.
	renewing bool
}

// record is one lease, or the memory of its withdrawal.
type record struct {
	entry  *entry
	sender *sender
	claim  wire.Claim // FirstSeen and LastSeen are below
	epoch  int64
	seq    uint64
	gone   bool
	// firstSeen is when the holder was first seen there, heard when its node last told.
	firstSeen, heard time.Time
	// told is when its node was last told of rivals.
	told time.Time

	expires    time.Time
	prev, next *record
}

// renewal says when the leases of former incarnations of an agent end.
type renewal struct {
	sender *sender
	at     time.Time
}

// New returns an empty table. The nodes are those of the roster.
func New(r *roster.Roster) *Table {
	return &Table{
		roster:  r,
		entries: make(map[detector.Key]*entry),
		senders: make(map[*roster.Node]*sender),
	}
}

// Len returns the number of leases.
func (t *Table) Len() int { return t.leases.len }

// Take takes in a lease or a withdrawal that a node tells, and returns whom to tell what.
// If it is refused it is not to be acknowledged; what there is to tell is to be told all
// the same.
func (t *Table) Take(from *roster.Node, l wire.Lease, now time.Time) ([]Tell, Refusal) {
	s := t.sender(from)
	if !s.take.AllowN(now, 1) {
		return nil, RefusedRate
	}
	e := t.entries[l.Key]
	r := e.find(s, l.Claim.Holder)
	// Only the present incarnation of an agent is heard, so that another epoch is a new one.
	if r != nil && from.Epoch == r.epoch && l.Seq < r.seq {
		return nil, Taken // overtaken by a later one
	}
	if r == nil && (t.leases.len+t.gone.len >= maxLeases || len(s.records) >= maxOfSender) {
		if len(s.records) >= maxOfSender {
			return nil, RefusedSender
		}
		return nil, RefusedAll
	}
	if r != nil && from.Epoch == r.epoch && l.Seq == r.seq {
		if r.gone || l.Gone {
			return nil, Taken
		}
		t.refresh(r, l, now)
		return t.match(r, false, now)
	}
	changed := r == nil || r.gone || r.epoch == from.Epoch || !r.like(l)
	if e == nil {
		e = &entry{key: l.Key}
		t.entries[l.Key] = e
	}
	if l.Gone {
		t.withdraw(e, s, r, l, now)
		return nil, Taken
	}
	if r == nil || r.gone {
		if !t.room(e, s, l) {
			t.Overfull++
			return t.matchOnly(e, s, l, now)
		}
		if r != nil {
			t.drop(r) // it comes anew, behind the others
			t.entries[l.Key] = e
		}
		r = &record{entry: e, sender: s}
		e.records = append(e.records, r)
		s.records[r] = struct{}{}
		e.live++
	}
	r.epoch, r.seq, r.gone = from.Epoch, l.Seq, false
	t.refresh(r, l, now)
	return t.match(r, changed, now)
}

// like says that the lease says nothing new: a new agent of the same boot tells again what
// the former one told.
func (r *record) like(l wire.Lease) bool {
	return r.claim.MAC == l.Claim.MAC && r.claim.Evidence == l.Claim.Evidence && r.claim.Episodes == l.Claim.Episodes
}

func (t *Table) refresh(r *record, l wire.Lease, now time.Time) {
	r.claim = l.Claim
	r.firstSeen, r.heard = now.Add(-l.Claim.FirstSeen), now
	t.queueOf(r).remove(r)
	r.expires = now.Add(leaseTTL)
	t.leases.push(r)
}

// withdraw remembers that a lease has ended, also one that never came.
func (t *Table) withdraw(e *entry, s *sender, r *record, l wire.Lease, now time.Time) {
	if r == nil {
		r = &record{entry: e, sender: s, claim: wire.Claim{Holder: l.Claim.Holder}, gone: true}
		t.roomForGone(e)
		e.records = append(e.records, r)
		s.records[r] = struct{}{}
	} else {
		t.queueOf(r).remove(r)
		if !r.gone {
			r.gone = true
			e.live--
		}
	}
	r.epoch, r.seq = s.node.Epoch, l.Seq
	r.expires = now.Add(goneTTL)
	t.gone.push(r)
}

// room makes room for another holder of a key, and says whether there is. Withdrawals do not
// take up room of leases; pods go before hosts, and the living before the dead.
func (t *Table) room(e *entry, s *sender, l wire.Lease) bool {
	ofNode := 0
	for _, r := range e.records {
		if r.sender == s && !r.gone {
			ofNode++
		}
	}
	switch {
	case ofNode >= maxOfNode:
		return false
	case e.live < maxHolders:
		return true
	}
	for _, r := range e.records {
		if r.gone {
			continue
		}
		if !r.sender.node.Alive || r.claim.Evidence == detector.Host && l.Claim.Evidence != detector.Host {
			t.drop(r)
			t.entries[e.key] = e
			return true
		}
	}
	return false
}

// roomForGone makes room for the memory of a withdrawal: the oldest goes.
func (t *Table) roomForGone(e *entry) {
	if len(e.records)-e.live < maxHolders {
		return
	}
	for _, r := range e.records {
		if r.gone {
			t.drop(r)
			t.entries[e.key] = e
			return
		}
	}
}

// Renewed takes in that a node's agent is another incarnation. What its predecessor told
// ends if it is not told again soon.
func (t *Table) Renewed(n *roster.Node, now time.Time) {
	if s := t.senders[n]; s != nil && len(s.records) > 0 && !s.renewing {
		s.renewing = true
		t.renewals = append(t.renewals, renewal{s, now.Add(renewWithin)})
	}
}

// Returned takes in that a node is there again that was not: it may have missed what there
// was to tell it.
func (t *Table) Returned(n *roster.Node, now time.Time) []Tell {
	s := t.senders[n]
	if s == nil {
		return nil
	}
	var tells []Tell
	for r := range s.records {
		if !r.gone {
			tells, _ = t.tell(tells, r, t.rivals(r), now)
		}
	}
	return tells
}

// Forget takes in that nothing is known of a node any more.
func (t *Table) Forget(n *roster.Node) {
	if s := t.senders[n]; s != nil {
		for r := range s.records {
			t.drop(r)
		}
		delete(t.senders, n)
	}
}

// Expire ends what is over.
func (t *Table) Expire(now time.Time) {
	for _, q := range []*queue{&t.leases, &t.gone} {
		for q.first != nil && !q.first.expires.After(now) {
			t.drop(q.first)
		}
	}
	for len(t.renewals) > 0 && !t.renewals[0].at.After(now) {
		s := t.renewals[0].sender
		t.renewals = t.renewals[1:]
		if s.renewing = s.node.Alive && now.Sub(s.node.Since) < renewWithin; s.renewing {
			// The incarnation that came last has as much time as the others had.
			t.renewals = append(t.renewals, renewal{s, now.Add(renewWithin)})
			continue
		}
		for r := range s.records {
			if r.epoch != s.node.Epoch && s.node.Alive {
				t.drop(r)
			}
		}
	}
}

// Next returns when there is something to expire, zero for never.
func (t *Table) Next() time.Time {
	var next time.Time
	for _, q := range []*queue{&t.leases, &t.gone} {
		if q.first != nil && (next.IsZero() || q.first.expires.Before(next)) {
			next = q.first.expires
		}
	}
	if len(t.renewals) > 0 && (next.IsZero() || t.renewals[0].at.Before(next)) {
		next = t.renewals[0].at
	}
	return next
}
