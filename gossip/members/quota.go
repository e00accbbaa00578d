package members

import (
	"net/netip"
	"sync"
)

// quota bounds what addresses may take of something, in all and each. It may be used by
// several goroutines at once.
type quota struct {
	most, each int

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

func newQuota(most, each int) *quota {
	return &quota{most: most, each: each, from: map[netip.Addr]int{}}
}

// take says whether there was room; if not, nothing is taken.
func (q *quota) take(from netip.Addr, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all+size > q.most || q.from[from]+size > q.each {
		return false
	}
	q.all += size
	q.from[from] += size
	return true
}

// give gives back what was taken.
func (q *quota) give(from netip.Addr, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all -= size
	if q.from[from] -= size; q.from[from] == 0 {
		delete(q.from, from)
	}
}
