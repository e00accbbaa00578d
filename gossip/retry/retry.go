// Package retry has the messages that must be acknowledged: each is sent again, less and less often, until it
// is acknowledged, replaced or given up. It knows neither what the messages say nor how they travel. It does no
// I/O, has no goroutine and reads no clock.
package retry

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/internal/schedule"
)

// grid is what later times are rounded up to, so that what goes to one node goes together.
const grid = 250 * time.Millisecond

// Policy is how messages of a kind are sent.
type Policy struct {
	// Pauses are those after each time a message was sent; the last is repeated.
	Pauses []time.Duration
	// GiveUp is how long after it was sent first a message is given up; 0 is never.
	GiveUp time.Duration
	// Max is how many of the kind there may be; 0 is any number.
	Max int
	// Urgent messages are sent before all others.
	Urgent bool
}

// Message is a message of the program that uses the queue.
type Message interface {
	// Identity is comparable. A message to a node replaces the one with the same identity.
	Identity() any
	// Policy is the same pointer for all messages of a kind.
	Policy() *Policy
}

// Queue is all messages of this node. It is not safe for concurrent use.
type Queue struct {
	start time.Time
	seq   uint64
	bySeq map[uint64]*item
	byID  map[id]*item
	due   schedule.Schedule[*item]
	count map[*Policy]int
}

type id struct {
	to       *roster.Node
	identity any
}

type item struct {
	id
	schedule.Place
	message     Message
	policy      *Policy
	seq         uint64
	tries       int
	first, next time.Time // when it was and is to be sent
}

// New returns an empty queue.
func New(now time.Time) *Queue {
	return &Queue{start: now, bySeq: make(map[uint64]*item), byID: make(map[id]*item), count: make(map[*Policy]int)}
}

// Put has a message sent to a node after a time, instead of one with the same identity, with a new sequence number.
// It returns false if there are too many of its kind.
func (q *Queue) Put(to *roster.Node, m Message, wait time.Duration, now time.Time) bool {
	i := &item{id: id{to, m.Identity()}, message: m, policy: m.Policy(), next: now.Add(wait)}
	if old := q.byID[i.id]; old != nil {
		q.remove(old)
	}
	switch {
	case i.policy.Max > 0 && q.count[i.policy] >= i.policy.Max:
		return false
	case i.policy.Urgent:
		i.next = q.start.Add(-1)
	case wait > 0:
		i.next = q.start.Add((i.next.Sub(q.start) + grid - 1) / grid * grid)
	}
	q.seq++
	i.seq = q.seq
	q.bySeq[i.seq], q.byID[i.id] = i, i
	q.count[i.policy]++
	q.due.Set(i)
	return true
}

// Due is a message to be sent now.
type Due struct {
	To      *roster.Node
	Message Message
	Seq     uint64
	// GaveUp: it is not to be sent any more; nobody acknowledged it in time.
	GaveUp bool
}

// Due returns at most n messages that are to be sent now, and assumes that they are sent.
func (q *Queue) Due(now time.Time, n int) (due []Due) {
	for i := q.due.First(); n > 0 && i != nil && !i.next.After(now); i, n = q.due.First(), n-1 {
		p := i.policy
		if i.tries == 0 {
			i.first = now
		}
		end := i.first.Add(p.GiveUp)
		gaveUp := p.GiveUp > 0 && !now.Before(end)
		due = append(due, Due{i.to, i.message, i.seq, gaveUp})
		if gaveUp {
			q.remove(i)
			continue
		}
		if i.next = now.Add(p.Pauses[min(i.tries, len(p.Pauses)-1)]); p.GiveUp > 0 && i.next.After(end) {
			i.next = end
		}
		i.tries++
		q.due.Set(i)
	}
	return due
}

// Next returns when a message is to be sent, zero for never.
func (q *Queue) Next() time.Time {
	if i := q.due.First(); i != nil {
		return i.next
	}
	return time.Time{}
}

// Waiting returns the message with a sequence number that was sent to a node, nil if it does not wait any more.
func (q *Queue) Waiting(to *roster.Node, seq uint64) Message {
	if i := q.bySeq[seq]; i != nil && i.to == to && i.tries > 0 {
		return i.message
	}
	return nil
}

// Remove removes the message to a node with an identity. It returns it, nil if there is none, and whether it was sent.
func (q *Queue) Remove(to *roster.Node, identity any) (m Message, sent bool) {
	i := q.byID[id{to, identity}]
	if i == nil {
		return nil, false
	}
	q.remove(i)
	return i.message, i.tries > 0
}

// RemoveAll removes the messages to a node and returns them, in the order of their sequence numbers.
func (q *Queue) RemoveAll(to *roster.Node) (removed []Message) {
	var all []*item
	for _, i := range q.bySeq {
		if i.to == to {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *item) int { return cmp.Compare(a.seq, b.seq) })
	for _, i := range all {
		q.remove(i)
		removed = append(removed, i.message)
	}
	return removed
}

// Late calls f for each message that was sent first, at since, more than age ago.
func (q *Queue) Late(age time.Duration, now time.Time, f func(to *roster.Node, m Message, tries int, since time.Time)) {
	for _, i := range q.bySeq {
		if i.tries > 0 && now.Sub(i.first) > age {
			f(i.to, i.message, i.tries, i.first)
		}
	}
}

func (q *Queue) remove(i *item) {
	delete(q.bySeq, i.seq)
	delete(q.byID, i.id)
	q.count[i.policy]--
	q.due.Remove(i)
}

// Before implements [schedule.Element]: by when they are due, and then by sequence number.
func (i *item) Before(o *item) bool {
	return i.next.Before(o.next) || i.next.Equal(o.next) && i.seq < o.seq
}
