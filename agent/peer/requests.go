package peer

import (
	"container/heap"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// together is how long after a holder was probed further requests about it wait, so that one
// probe serves them all: where many nodes have an address, each asks each.
const sharedProbe = 20 * time.Millisecond

// request is a probe request of another node that waits for the holder's answer.
type request struct {
	cluster.ProbeRequest
	arrived  time.Time
	began    time.Time // first attempt; zero before
	attempts int
	next     time.Time
	forwards bool // it answered, but for an address that it does not have

	index int // in requests.due; -1 once it has ended
}

func (r *request) target() target { return target{r.Key, r.Holder} }

// about says which holder and address a request is about.
type target struct {
	key    detector.Key
	holder detector.HolderID
}

// requests are those of other nodes that wait. The zero value has none.
type requests struct {
	due      queue
	byTarget map[target][]*request
	// last is when a holder was probed for a request last; recent are those of the last
	// moment, by time.
	last   map[target]time.Time
	recent []target
	// paused is until when the probe budget leaves nothing for requests.
	paused time.Time
}

// add lets a request wait for its turn.
func (rs *requests) add(r *request) {
	if rs.byTarget == nil {
		rs.byTarget, rs.last = make(map[target][]*request), make(map[target]time.Time)
	}
	which := r.target()
	if at, ok := rs.last[which]; ok && r.next.Before(at.Add(sharedProbe)) {
		r.next = at.Add(sharedProbe)
	}
	heap.Push(&rs.due, r)
	rs.byTarget[which] = append(rs.byTarget[which], r)
}

// end removes a request. It reports false if it has ended already.
func (rs *requests) end(r *request) bool {
	if r.index < 0 {
		return false
	}
	heap.Remove(&rs.due, r.index)
	which := r.target()
	rest := slices.DeleteFunc(rs.byTarget[which], func(other *request) bool { return other == r })
	if len(rest) == 0 {
		delete(rs.byTarget, which)
	} else {
		rs.byTarget[which] = rest
	}
	return true
}

// wait puts the next attempt at a request off, unless it has ended.
func (rs *requests) wait(r *request, until time.Time) {
	r.next = until
	if r.index >= 0 {
		heap.Fix(&rs.due, r.index)
	}
}

// probed notes that a holder was probed; served lets that happen once in the time together.
func (rs *requests) probed(which target, now time.Time) {
	for len(rs.recent) > 0 && now.Sub(rs.last[rs.recent[0]]) >= sharedProbe {
		delete(rs.last, rs.recent[0])
		rs.recent = rs.recent[1:]
	}
	rs.last[which] = now
	rs.recent = append(rs.recent, which)
}

// served says whether the holder was probed just now, and since the request arrived: then the
// answer is its own, too.
func (rs *requests) probedRecently(r *request, now time.Time) bool {
	at, ok := rs.last[r.target()]
	return ok && now.Sub(at) < sharedProbe && !at.Before(r.arrived)
}

// first returns the request whose turn it is at now, nil if there is none.
func (rs *requests) first(now time.Time) *request {
	if len(rs.due) == 0 || rs.due[0].next.After(now) || rs.paused.After(now) {
		return nil
	}
	return rs.due[0]
}

// next returns when first has one, zero for never.
func (rs *requests) next() time.Time {
	if len(rs.due) == 0 {
		return time.Time{}
	}
	if at := rs.due[0].next; at.After(rs.paused) {
		return at
	}
	return rs.paused
}

// queue has the requests by next, and by arrival where those are equal; it implements
// [heap.Interface].
type queue []*request

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if c := q[i].next.Compare(q[j].next); c != 0 {
		return c < 0
	}
	return q[i].arrived.Before(q[j].arrived)
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	one := x.(*request)
	one.index = len(*q)
	*q = append(*q, one)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	one := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	one.index = -1
	return one
}
