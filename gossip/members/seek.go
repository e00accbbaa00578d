package members

import (
	"context"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// A member that is heard although it is taken for dead is joined at once, but one at most
	// every seekAgain: the others wait for their next packet.
	seekAgain = 5 * time.Second
	maxSought = 16
)

// Seek tells of a member that was heard, or named by another, and is not there. One that is
// taken for dead is joined at once: nobody may have told it, or it would have objected. Of one
// that is not known at all the news may have been lost, and another member is asked who is
// there. Seek does not wait; told often, it does little.
func (m *Members) Seek(id wire.MemberID) {
	at, lost := m.table.lostAt(id)
	if !lost {
		m.strangers.note(id, time.Now())
		return
	}
	select {
	case m.joins.sought <- at:
	default:
	}
}

// seek joins members that were heard although they are taken for dead, until ctx ends.
func (m *Members) seek(ctx context.Context) {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-m.joins.sought:
			if now := time.Now(); now.Sub(last) >= seekAgain && !m.table.occupied(at) {
				last = now
				if err := m.joinOne(at); err != nil {
					m.log.Debug("joining a member again after a packet from it", "error", err)
				}
			}
		}
	}
}

// inquire asks some member who is there, until ctx ends, when strangers were heard. Every member
// tells the news of one that joined a few others only, and then no more; in small clusters a
// few of a hundred are not told, and would learn of it with their next exchange of all, after
// half a minute or, in large clusters, after minutes. Until then they take nothing from it.
func (m *Members) inquire(ctx context.Context) {
	for {
		due := m.strangers.due()
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.strangers.woken:
			continue
		case <-timer:
		}
		// They may be known by now.
		if due := m.strangers.due(); due.IsZero() || due.After(time.Now()) || ctx.Err() != nil {
			continue
		}
		at := m.table.someone()
		if !at.IsValid() {
			m.strangers.asked(time.Now(), false)
			continue
		}
		_, err := m.list.Join([]string{at.String()})
		found := m.strangers.asked(time.Now(), err == nil)
		switch {
		case err != nil:
			m.log.Debug("requesting the member list", "error", joinError(at, err))
		case found > 0:
			m.log.Info("received packets from unknown members; requested the member list from another node", "nodes", found, "asked", at)
		default:
			m.log.Debug("requesting the member list: no new member", "asked", at)
		}
	}
}

// someone is the address of some member that is alive, invalid if there is none.
func (t *table) someone() netip.AddrPort {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, entries := range t.places { // in no order
		for _, e := range entries {
			if e.State == cluster.Alive {
				return at
			}
		}
	}
	return netip.AddrPort{}
}
