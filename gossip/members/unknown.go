package members

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

const (
	// unknownFor is how long a member may be unknown before it is asked who it is, in a cluster of up to
	// smallCluster members; unknownMore is added with each doubling. Until then the news of it may come.
	unknownFor   = 2 * time.Second
	unknownMore  = 500 * time.Millisecond
	smallCluster = 32
	// One is asked at most in askEvery, and in as much more with each doubling: the reply is as long as
	// the members are many. The same is not asked again before askAgain.
	askEvery = 5 * time.Second
	askAgain = time.Minute
	// maxUnknown may wait.
	maxUnknown = 256
)

// unknown are the members from which messages came and that are not known. Every member sends the news
// of one that joined to a few others only; in small clusters a few of a hundred get none, and memberlist's
// next exchange of all may be minutes away. Until then they accept nothing from it. A member that was given
// up wrongly is unknown, too.
//
// It is safe for concurrent use.
type unknown struct {
	wake chan struct{}

	mu    sync.Mutex
	due   map[wire.MemberID]askable
	asked map[netip.AddrPort]time.Time
}

type askable struct {
	at  netip.AddrPort
	due time.Time
}

func (u *unknown) init() {
	u.wake = make(chan struct{}, 1)
	u.due, u.asked = make(map[wire.MemberID]askable), make(map[netip.AddrPort]time.Time)
}

// note notes that a message came from a member that is not known. There are that many members.
func (u *unknown) note(id wire.MemberID, at netip.AddrPort, members int, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, waits := u.due[id]; waits || len(u.due) >= maxUnknown || now.Sub(u.asked[at]) < askAgain {
		return
	}
	wait := unknownFor + time.Duration(doublings(members))*unknownMore
	u.due[id] = askable{at, now.Add(wait + rand.N(wait/4))}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// take returns whom to ask now, or else when to look again, zero for never.
func (u *unknown) take(known func(wire.MemberID) bool, now time.Time) (at netip.AddrPort, next time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for at, when := range u.asked {
		if now.Sub(when) >= askAgain {
			delete(u.asked, at)
		}
	}
	for id, a := range u.due {
		switch {
		case known(id):
			delete(u.due, id)
		case !a.due.After(now):
			delete(u.due, id)
			u.asked[a.at] = now
			return a.at, time.Time{}
		case next.IsZero() || a.due.Before(next):
			next = a.due
		}
	}
	return netip.AddrPort{}, next
}

// resync exchanges the list of members with those that are unknown, until ctx ends.
func (m *Members) resync(ctx context.Context) {
	known := func(id wire.MemberID) bool { _, ok := m.at(id); return ok }
	for {
		at, next := m.unknown.take(known, time.Now())
		if at.IsValid() {
			m.log.Info("received messages from an unknown member; requesting its list of members", "address", at)
			if err := m.joinOne(at); err != nil {
				m.log.Debug("requesting the list of members", "error", err)
			}
			next = time.Now().Add(jitter(askEvery * time.Duration(1+doublings(m.count()))))
		}
		var timer <-chan time.Time
		wake := m.unknown.wake
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		if at.IsValid() {
			wake = nil // not before then
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer:
		}
	}
}

// doublings is how often a small cluster has doubled to be so large.
func doublings(members int) (n int) {
	for size := smallCluster; size < members; size *= 2 {
		n++
	}
	return n
}
