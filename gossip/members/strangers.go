package members

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/gossip/wire"
)

const (
	// newsTime is how long news of a member may take to come to all, in a cluster of up to
	// smallCluster members, and moreNews how much longer with each doubling of them.
	newsTime = 2 * time.Second
	moreNews = 500 * time.Millisecond
	// Somebody is asked who is there every askPause at most, and as much more with each
	// doubling: the answer is as long as they are many. memberlist's own exchanges become
	// rarer in the same way (util.go, pushPullScale). While nobody is found the pause
	// doubles, up to askLimit.
	askPause     = 5 * time.Second
	askLimit     = 5 * time.Minute
	smallCluster = 32
	// maxStrangers may wait; one more takes the place of another. Who was not known to
	// maxAsked members is not asked for again before askLimit has passed: it is refused
	// here, or nobody's member.
	maxStrangers = 256
	maxAsked     = 3
	// strangerRate is how many a second are looked at, strangerBurst at once: anybody can
	// send packets in anybody's name where there is no key.
	strangerRate, strangerBurst = 20, 100
)

// strangers are those that were heard and are not known. It may be used by several goroutines
// at once.
type strangers struct {
	known func(wire.MemberID) bool
	live  func() int // members, with this one
	woken chan struct{}

	mu    sync.Mutex
	rate  *rate.Limiter
	heard map[wire.MemberID]stranger
	vain  map[wire.MemberID]time.Time // since when
	last  time.Time                   // when somebody was asked
	pause time.Duration               // until the next is; 0 for the shortest
}

type stranger struct {
	due   time.Time // not before
	asked int       // of how many members that answered
}

func newStrangers(known func(wire.MemberID) bool, live func() int) *strangers {
	return &strangers{
		known: known, live: live,
		woken: make(chan struct{}, 1), rate: rate.NewLimiter(strangerRate, strangerBurst),
		heard: map[wire.MemberID]stranger{}, vain: map[wire.MemberID]time.Time{},
	}
}

// note takes in that somebody was heard who may be a stranger.
func (s *strangers) note(id wire.MemberID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.heard[id]; again || s.known(id) || !s.rate.AllowN(now, 1) {
		return
	}
	if at, asked := s.vain[id]; asked && now.Sub(at) < askLimit {
		return
	}
	makeRoom(s.heard)
	// Whoever is heard by many nodes at one time is not asked for by all at one time.
	wait := newsTime + time.Duration(doublings(s.live()))*moreNews
	s.heard[id] = stranger{due: now.Add(wait + rand.N(wait/4))}
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// makeRoom drops any one if there are too many.
func makeRoom[T any](list map[wire.MemberID]T) {
	for id := range list {
		if len(list) < maxStrangers {
			return
		}
		delete(list, id)
	}
}

// due is when to ask who is there, zero for never.
func (s *strangers) due() (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.heard {
		switch {
		case s.known(id):
			delete(s.heard, id)
			s.pause = 0
		case due.IsZero() || one.due.Before(due):
			due = one.due
		}
	}
	if due.IsZero() || s.last.IsZero() {
		return due
	}
	if next := s.last.Add(max(s.pause, shortestPause(s.live()))); next.After(due) {
		due = next
	}
	return due
}

// asked takes in that somebody was asked just now, who answered or not, and returns how many
// strangers have become known meanwhile.
func (s *strangers) asked(now time.Time, answered bool) (found int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.heard {
		switch {
		case s.known(id):
			found++
			delete(s.heard, id)
		case !answered || one.due.After(now):
		case one.asked+1 == maxAsked:
			delete(s.heard, id)
			makeRoom(s.vain)
			s.vain[id] = now
		default:
			one.asked++
			s.heard[id] = one
		}
	}
	shortest := shortestPause(s.live())
	switch {
	case found > 0:
		s.pause = 0
	case answered:
		s.pause = min(2*max(s.pause, shortest), askLimit)
	}
	s.last = now.Add(rand.N(shortest / 5)) // nor again at one time
	return found
}

func shortestPause(members int) time.Duration { return askPause * time.Duration(1+doublings(members)) }

// doublings is how often a small cluster has doubled to be so large.
func doublings(members int) (n int) {
	for size := smallCluster; size < members; size *= 2 {
		n++
	}
	return n
}
