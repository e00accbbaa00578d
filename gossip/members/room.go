package members

import (
	"net/netip"
	"sync"
)

// room bounds the bytes of streams, in all and of each address. Where there is none left,
// those who hold the most make way: who fills it with few addresses keeps nobody out whose
// streams are smaller than theirs. It may be used by several goroutines at once.
type room struct {
	most, each int

	mu      sync.Mutex
	left    *sync.Cond      // a stream has left, or has to
	streams map[*stream]int // bytes, never 0
	from    map[netip.Addr]int
	all     int
	ended   bool
}

func newRoom(most, each int) *room {
	r := &room{most: most, each: each, streams: map[*stream]int{}, from: map[netip.Addr]int{}}
	r.left = sync.NewCond(&r.mu)
	return r
}

// take says whether there was room for more of a stream, which others may have been cut
// off for; if not, nothing is taken. It waits until those have let go of what they hold: who
// reads them finds them cut off, at the latest when memberlist has merged what it had.
func (r *room) take(s *stream, size int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !s.cut.Load() && (r.all+size > r.most || r.from[s.from]+size > r.each) {
		if r.ended {
			return false
		}
		if !r.leaving(s, size) {
			other := r.largest(s, size)
			if other == nil {
				return false
			}
			other.cut.Store(true)
			other.refuse()
			other.Conn.Close()
			r.left.Broadcast() // it may be waiting itself
		}
		r.left.Wait()
	}
	if s.cut.Load() {
		return false
	}
	r.streams[s] += size
	r.from[s.from] += size
	r.all += size
	return true
}

// leaving says whether a stream was cut off, for the sake of this one or of another, and
// still holds what this one lacks.
func (r *room) leaving(s *stream, size int) bool {
	own := r.from[s.from]+size > r.each
	for other := range r.streams {
		if other.cut.Load() && (!own || other.from == s.from) {
			return true
		}
	}
	return false
}

// largest finds the stream that makes way for more of another, if any does: of the address
// that holds the most, if it would still do so, and otherwise of the same address.
func (r *room) largest(s *stream, size int) (found *stream) {
	loser := s.from
	if want := r.from[s.from] + size; want <= r.each {
		for from, held := range r.from {
			if held > max(want, r.from[loser]) {
				loser = from
			}
		}
	}
	least := 0
	if loser == s.from {
		least = r.streams[s] + size
	}
	for other, held := range r.streams {
		if other.from == loser && other != s && held > least {
			found, least = other, held
		}
	}
	return found
}

// end has nobody wait any more.
func (r *room) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.left.Broadcast()
}

// leave gives back all that a stream holds.
func (r *room) leave(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := r.streams[s]
	delete(r.streams, s)
	r.all -= size
	if r.from[s.from] -= size; r.from[s.from] == 0 {
		delete(r.from, s.from)
	}
	r.left.Broadcast()
}
