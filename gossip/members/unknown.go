package members

import (
	"math/bits"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

const (
	// newsTime is how long the news of a member may take in a cluster of up to 32 members; newsMore is added
	// with each doubling.
	newsTime = 2 * time.Second
	newsMore = 500 * time.Millisecond
	// A list of members is requested at most every requestPause, and every as much more with each doubling: it is as
	// long as the members are many. While it does not have the unknown member the pause doubles, up to maxRequestPause.
	requestPause    = 5 * time.Second
	maxRequestPause = 5 * time.Minute
)

// resync is when to request a list of members again. It is safe for concurrent use.
type resync struct {
	mu    sync.Mutex
	next  time.Time
	vain  int // requests that did not help, one after the other
	waits bool
}

// receivedUnknown handles a message of a member that is not known, by exchanging the list of members with it.
// One that was lost is asked at once. Of others the news may be on the way: each member sends it to a few only,
// so that in small clusters a few of a hundred get none, and memberlist's next exchange of all may be minutes away.
func (m *Members) receivedUnknown(id wire.MemberID, at netip.AddrPort) {
	doublings, r, wait := bits.Len(uint(m.count()-1)/32), &m.returned, time.Duration(0)
	if !m.joins.isLost(at) {
		r, wait = &m.unknown, newsTime+time.Duration(doublings)*newsMore
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits || now.Before(r.next) {
		return
	}
	r.waits = true
	time.AfterFunc(wait, func() {
		known := m.at(id).IsValid()
		if !known {
			m.log.Info("received messages from an unknown member; requesting its list of members", "address", at)
			m.joinOne(at) //nolint:errcheck // it is logged
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waits = false
		if known {
			return
		}
		if r.vain++; m.at(id).IsValid() {
			r.vain = 0
		}
		pause := requestPause * time.Duration(1+doublings)
		r.next = time.Now().Add(jitter(min(pause<<min(r.vain, 10), max(pause, maxRequestPause))))
	})
}
