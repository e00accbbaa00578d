package pods

import (
	"time"

	times "github.com/dupip/dupip/internal/schedule"
)

const (
	maxPending = 4096
	// relistPause is the least time between two lists for [Resolver.Relist].
	relistPause = 2 * time.Second
)

// pauses are those between the early lists for a pending netns, for a minute: a runtime lists a pod once it has made it, which took
// 18 s on a machine that was 99% busy. Afterwards the netns most likely belongs to no pod.
var pauses = []time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second, 20 * time.Second,
}

// schedule determines when a source of names is read, the runtime's list or the processes: at ordinary times, and earlier while a netns has
// no name, or on request.
type schedule struct {
	wake    chan struct{}       // has a value when the next list may be due earlier
	pending map[uint64]struct{} // the namespaces without a name, by cookie
	step    int                 // the index of the next pause
	// The next list is due at the first of these that is not zero.
	ordinary, early, requested time.Time
	relistFrom                 time.Time // no list by request before
}

func makeSchedule() schedule {
	return schedule{wake: make(chan struct{}, 1), pending: make(map[uint64]struct{})}
}

// request adds a netns without a name. A second request has no effect.
func (s *schedule) request(cookie uint64, now time.Time) {
	if _, ok := s.pending[cookie]; ok {
		return
	}
	if len(s.pending) >= maxPending {
		clear(s.pending) // most have ended: a node has fewer pods
	}
	s.pending[cookie] = struct{}{}
	s.step = 1
	s.early = times.Earlier(s.early, now.Add(pauses[0]))
	signal(s.wake)
}

// forget has a netns requested no longer.
func (s *schedule) forget(cookie uint64) {
	if delete(s.pending, cookie); len(s.pending) == 0 {
		s.early = time.Time{} // the next one waits, too
	}
}

// relist requests one more list, no earlier than at a time.
func (s *schedule) relist(at time.Time) {
	s.requested = times.Earlier(s.requested, times.Later(at, s.relistFrom))
	signal(s.wake)
}

func (s *schedule) next() time.Time {
	next := times.Earlier(s.ordinary, s.requested)
	if len(s.pending) > 0 {
		next = times.Earlier(next, s.early)
	}
	return next
}

// began records that a list is being read.
func (s *schedule) began(now time.Time) {
	s.requested, s.relistFrom = time.Time{}, now.Add(relistPause)
}

// ended records that a list was read, and plans the next one.
func (s *schedule) ended(now time.Time, resync time.Duration) {
	s.ordinary, s.early = now.Add(resync), time.Time{}
	if len(s.pending) > 0 && s.step < len(pauses) {
		s.early = now.Add(pauses[s.step])
		s.step++
	}
}
