package agent

import (
	"container/heap"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// together is how long after a holder was asked further questions about it wait, so that
// one solicitation serves them all: where many nodes have an address, each asks each.
const together = 20 * time.Millisecond

// question is one that another node has put and that waits for the holder's answer.
type question struct {
	cluster.Question
	arrived  time.Time
	began    time.Time // first attempt; zero before
	attempts int
	next     time.Time
	forwards bool

	place int // in questions.due; -1 once it has ended
}

func (q *question) whom() whom { return whom{q.Key, q.Holder} }

// whom says which holder and address a question is about.
type whom struct {
	key    detector.Key
	holder detector.HolderID
}

// questions are those of other nodes that wait. The zero value has none.
type questions struct {
	due   queue
	about map[whom][]*question
	// asked is when a holder was solicited for a question last; recent are those of the
	// last moment, by time.
	asked  map[whom]time.Time
	recent []whom
	// paused is until when the rate limit leaves nothing for questions.
	paused time.Time
}

// add lets a question wait for its turn.
func (qs *questions) add(q *question) {
	if qs.about == nil {
		qs.about, qs.asked = make(map[whom][]*question), make(map[whom]time.Time)
	}
	who := q.whom()
	if at, ok := qs.asked[who]; ok && q.next.Before(at.Add(together)) {
		q.next = at.Add(together)
	}
	heap.Push(&qs.due, q)
	qs.about[who] = append(qs.about[who], q)
}

// end removes a question. It reports false if it has ended already.
func (qs *questions) end(q *question) bool {
	if q.place < 0 {
		return false
	}
	heap.Remove(&qs.due, q.place)
	who := q.whom()
	rest := slices.DeleteFunc(qs.about[who], func(other *question) bool { return other == q })
	if len(rest) == 0 {
		delete(qs.about, who)
	} else {
		qs.about[who] = rest
	}
	return true
}

// wait puts the next attempt at a question off, unless it has ended.
func (qs *questions) wait(q *question, until time.Time) {
	q.next = until
	if q.place >= 0 {
		heap.Fix(&qs.due, q.place)
	}
}

// put notes that a holder was solicited; not more often than served lets it.
func (qs *questions) put(who whom, now time.Time) {
	for len(qs.recent) > 0 && now.Sub(qs.asked[qs.recent[0]]) >= together {
		delete(qs.asked, qs.recent[0])
		qs.recent = qs.recent[1:]
	}
	qs.asked[who] = now
	qs.recent = append(qs.recent, who)
}

// served says whether the holder was asked just now, and since the question arrived: then
// the answer is its own, too.
func (qs *questions) served(q *question, now time.Time) bool {
	at, ok := qs.asked[q.whom()]
	return ok && now.Sub(at) < together && !at.Before(q.arrived)
}

// first returns the question whose turn it is at now, nil if there is none.
func (qs *questions) first(now time.Time) *question {
	if len(qs.due) == 0 || qs.due[0].next.After(now) || qs.paused.After(now) {
		return nil
	}
	return qs.due[0]
}

// next returns when first has one, zero for never.
func (qs *questions) next() time.Time {
	if len(qs.due) == 0 {
		return time.Time{}
	}
	if at := qs.due[0].next; at.After(qs.paused) {
		return at
	}
	return qs.paused
}

// queue has the questions by next, and by arrival where those are equal; it implements
// [heap.Interface].
type queue []*question

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if c := q[i].next.Compare(q[j].next); c != 0 {
		return c < 0
	}
	return q[i].arrived.Before(q[j].arrived)
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	one := x.(*question)
	one.place = len(*q)
	*q = append(*q, one)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	one := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	one.place = -1
	return one
}
