package members

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// news is one thing to tell the handler.
type news struct {
	member     Member
	kind       newsKind
	gracefully bool
}

type newsKind uint8

const (
	newsJoined newsKind = iota
	newsUpdated
	newsLeft
)

// tell tells the handler who joined and left, until ctx ends. That is not done where
// memberlist says so: it says it under its lock, and not whether a member left or died.
func (m *Members) tell(ctx context.Context) {
	// In a quiet cluster each is worth a line; a thousand nodes that start are not.
	lines := rate.NewLimiter(rate.Every(10*time.Second), 10)
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.table.wake:
		}
		if unsure := m.table.unsure(); len(unsure) > 0 {
			m.refresh(0)
			m.table.settle(unsure)
		}
		for _, n := range m.table.news() {
			m.tellOne(n, lines.AllowN(time.Now(), 1))
		}
	}
}

func (m *Members) tellOne(n news, aloud bool) {
	say := m.log.Debug
	if aloud {
		say = m.log.Info
	}
	attrs := []any{"node", n.member.Name, "address", n.member.Address, "version", n.member.Version}
	switch n.kind {
	case newsJoined:
		say("a node joined", attrs...)
		m.handler.Joined(n.member)
	case newsUpdated:
		m.handler.Updated(n.member)
	case newsLeft:
		if !n.gracefully {
			m.joins.lost(n.member.Address, time.Now())
			say("a node does not answer any more", attrs...)
		} else {
			say("a node left", attrs...)
		}
		m.trouble.forget(n.member.ID)
		m.handler.Left(n.member, n.gracefully)
	}
}

// unsure are the members of which it is not known whether they left or died.
func (t *table) unsure() (all []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.dirty {
		if e.unsure {
			all = append(all, e)
		}
	}
	return all
}

// settle takes those for dead of which nothing was found out.
func (t *table) settle(unsure []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range unsure {
		e.unsure = false
	}
}

// news is what the handler has to be told. Once it is told, some are forgotten.
func (t *table) news() (all []news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dirty := t.dirty
	t.dirty = nil
	for _, e := range dirty {
		e.dirty = false
		switch {
		case e.here() && !e.told:
			all = append(all, news{e.Member, newsJoined, false})
			e.told = true
		case e.here() && e.again:
			all = append(all, news{e.Member, newsUpdated, false})
		case e.here():
		case e.unsure:
			t.mark(e) // it went just now
			continue
		case e.told:
			all = append(all, news{e.Member, newsLeft, e.State == cluster.Left})
			e.told = false
		}
		if !e.here() {
			t.restore(e, time.Now()) // it is told of later than this one
		}
		e.again = false
	}
	for len(t.gone) > maxGone {
		t.drop()
	}
	return all
}

// duel finds out which of two members at one address is there, until ctx ends. A ping
// carries the name of whom it is for, and only that one answers.
func (m *Members) duel(ctx context.Context) {
	const tries = 4
	for {
		var pair [2]wire.MemberID
		select {
		case <-ctx.Done():
			return
		case pair = <-m.table.contest:
		}
		for range tries {
			first, second := m.pings(pair[0]), m.pings(pair[1])
			if first && !second {
				m.table.lost(pair[1], pair[0], time.Now())
			} else if second && !first {
				m.table.lost(pair[0], pair[1], time.Now())
			}
			if first || second || ctx.Err() != nil {
				break
			}
		}
	}
}

// pings says whether a member answers a ping.
func (m *Members) pings(id wire.MemberID) bool {
	node, ok := m.table.route(id)
	if !ok {
		return false
	}
	_, err := m.list.Ping(node.Name, textAddr(node.Address()))
	return err == nil
}

// textAddr is the text of an address as net.Addr.
type textAddr string

func (textAddr) Network() string  { return "udp" }
func (a textAddr) String() string { return string(a) }
