// Package search plays random lives of small clusters in virtual time, with the product's own detector, exchange, prober, gossip, state
// format and documents, and an oracle that knows the truth. What it finds it shrinks to a short plan.
//
// A world has one goroutine and one source of chance, so that the same plan always ends the same way. The network, the membership and the
// pods are simulated, and hostile: see Plan for what happens in a world, and truth for what must hold.
package search

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// began is when all worlds begin, on a clock that is right.
var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster while a plan is played.
type world struct {
	plan     Plan
	now      time.Duration // since it began
	random   *rand.Rand
	queue    tasks
	tasks    uint64
	machines []*machine
	network  network
	members  membership
	truth    truth
	trace    func(format string, args ...any) // nil for none
}

// task is something that happens at a time. One that is dropped does not.
type task struct {
	at      time.Duration
	seq     uint64
	do      func()
	dropped bool
}

type tasks []*task

func (q tasks) Len() int { return len(q) }
func (q tasks) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q tasks) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *tasks) Push(x any)   { *q = append(*q, x.(*task)) }
func (q *tasks) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	return t
}

// at has something happen at a time; what is over happens now.
func (w *world) at(at time.Duration, do func()) *task {
	w.tasks++
	t := &task{at: max(at, w.now), seq: w.tasks, do: do}
	heap.Push(&w.queue, t)
	return t
}

// after has something happen after a time.
func (w *world) after(wait time.Duration, do func()) *task { return w.at(w.now+wait, do) }

// run lets time pass until then, or until a law is broken.
func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until && len(w.truth.broken) == 0 {
		t := heap.Pop(&w.queue).(*task)
		if !t.dropped {
			w.now = t.at
			t.do()
		}
	}
	w.now = until
}

// between returns a random time from the first to the second.
func (w *world) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(w.random.Int64N(int64(most-least)))
}

// chance is true so often.
func (w *world) chance(share float64) bool { return share > 0 && w.random.Float64() < share }

// machine returns that of a name, nil if there is none.
func (w *world) machine(name string) *machine {
	for _, m := range w.machines {
		if m.label == name {
			return m
		}
	}
	return nil
}

// agents are the agents that run, in the order of their machines.
func (w *world) agents() (list []*agent) {
	for _, m := range w.machines {
		if m.agent != nil {
			list = append(list, m.agent)
		}
	}
	return list
}
