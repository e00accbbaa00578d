// Package retry has the messages that must be acknowledged: each is sent again, less and less often, until it
// is acknowledged, replaced or given up. It knows neither what the messages say nor how they travel. It does no
// I/O, has no goroutine and reads no clock.
package retry

import (
	"container/heap"
	"slices"
	"time"

	"github.com/dupip/dupip/gossip/roster"
)

// grid is what times that are not urgent are rounded to, so that what goes to one node goes together.
const grid = 250 * time.Millisecond

// Policy says when messages of a kind are sent again.
type Policy struct {
	// Pauses are those after each time it was sent; the last is repeated.
	Pauses []time.Duration
	// GiveUp is after how long it is given up; 0 is never.
	GiveUp time.Duration
}

// Message is a message of the program that uses the queue.
type Message interface {
	// ID is comparable. A message to a node replaces the one with the same ID.
	ID() any
	// Policy says when it is sent again.
	Policy() Policy
}

// Queue is all messages of this node. It is not safe for concurrent use.
type Queue struct {
	start time.Time
	seq   uint64
	bySeq map[uint64]*item
	byID  map[id]*item
	items items
}

type id struct {
	to      *roster.Node
	message any
}

type item struct {
	id
	message Message
	seq     uint64
	tries   int
	first   time.Time // when it was sent first, or is to be
	next    time.Time
	index   int
}

// New returns an empty queue. Sequence numbers begin at first.
func New(first uint64, now time.Time) *Queue {
	return &Queue{start: now, seq: first, bySeq: make(map[uint64]*item), byID: make(map[id]*item)}
}

// Len returns the number of messages that are not acknowledged.
func (q *Queue) Len() int { return len(q.items) }

// Put has a message sent to a node at a time, instead of one that is equal and waits, with a new sequence number.
// Its time is rounded up to a quarter of a second if it is in the future.
func (q *Queue) Put(to *roster.Node, m Message, at, now time.Time) {
	i := q.byID[id{to, m.ID()}]
	if i == nil {
		i = &item{id: id{to, m.ID()}, index: -1}
		q.byID[i.id] = i
	}
	delete(q.bySeq, i.seq)
	q.seq++
	i.message, i.seq, i.tries = m, q.seq, 0
	q.bySeq[i.seq] = i
	if at.After(now) {
		at = q.start.Add((at.Sub(q.start) + grid - 1) / grid * grid)
	}
	i.first, i.next = at, at
	q.fix(i)
}

// Due is a message to be sent now.
type Due struct {
	To      *roster.Node
	Message Message
	Seq     uint64
	// GaveUp: it is not to be sent any more; nobody acknowledged it in time.
	GaveUp bool
}

// Due appends at most n messages to dst that are to be sent now, and assumes that they are sent.
func (q *Queue) Due(dst []Due, now time.Time, n int) []Due {
	for ; len(q.items) > 0 && !q.items[0].next.After(now) && n > 0; n-- {
		i := q.items[0]
		policy := i.message.Policy()
		if policy.GiveUp > 0 && i.tries > 0 && now.Sub(i.first) >= policy.GiveUp {
			q.remove(i)
			dst = append(dst, Due{i.to, i.message, i.seq, true})
			continue
		}
		if i.tries == 0 {
			i.first = now
		}
		i.next = now.Add(policy.Pauses[min(i.tries, len(policy.Pauses)-1)])
		if limit := i.first.Add(policy.GiveUp); policy.GiveUp > 0 && i.next.After(limit) {
			i.next = limit
		}
		i.tries++
		q.fix(i)
		dst = append(dst, Due{i.to, i.message, i.seq, false})
	}
	return dst
}

// Next returns when a message is to be sent, zero for never.
func (q *Queue) Next() time.Time {
	if len(q.items) == 0 {
		return time.Time{}
	}
	return q.items[0].next
}

// Acked removes the message with a sequence number that was sent to a node, and returns it. It reports false if
// there is none: it was replaced, or acknowledged before.
func (q *Queue) Acked(from *roster.Node, seq uint64) (Message, bool) {
	i := q.bySeq[seq]
	if i == nil || i.to != from || i.tries == 0 {
		return nil, false
	}
	q.remove(i)
	return i.message, true
}

// Remove removes the message with an ID, and reports whether it may have been received.
func (q *Queue) Remove(to *roster.Node, messageID any) (sent bool) {
	i := q.byID[id{to, messageID}]
	if i == nil {
		return false
	}
	q.remove(i)
	return i.tries > 0
}

// RemoveAll removes the messages to a node and returns them.
func (q *Queue) RemoveAll(to *roster.Node) (removed []Message) {
	for _, i := range slices.Clone(q.items) {
		if i.to == to {
			q.remove(i)
			removed = append(removed, i.message)
		}
	}
	return removed
}

// Waiting returns the message with a sequence number that was sent to a node, if it is not acknowledged.
func (q *Queue) Waiting(to *roster.Node, seq uint64) (Message, bool) {
	if i := q.bySeq[seq]; i != nil && i.to == to && i.tries > 0 {
		return i.message, true
	}
	return nil, false
}

// Late calls f for each message that was sent first, at since, more than age ago.
func (q *Queue) Late(age time.Duration, now time.Time, f func(to *roster.Node, m Message, tries int, since time.Time)) {
	for _, i := range q.items {
		if i.tries > 0 && now.Sub(i.first) > age {
			f(i.to, i.message, i.tries, i.first)
		}
	}
}

func (q *Queue) remove(i *item) {
	delete(q.bySeq, i.seq)
	delete(q.byID, i.id)
	heap.Remove(&q.items, i.index)
}

func (q *Queue) fix(i *item) {
	if i.index < 0 {
		heap.Push(&q.items, i)
	} else {
		heap.Fix(&q.items, i.index)
	}
}

// items is a heap by when they are due.
type items []*item

// Len implements [heap.Interface].
func (h items) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h items) Less(i, j int) bool { return h[i].next.Before(h[j].next) }

// Swap implements [heap.Interface].
func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements [heap.Interface].
func (h *items) Push(x any) {
	i := x.(*item)
	i.index = len(*h)
	*h = append(*h, i)
}

// Pop implements [heap.Interface].
func (h *items) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	i.index = -1
	return i
}
