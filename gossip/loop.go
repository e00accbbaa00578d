package gossip

import (
	"errors"
	"time"

	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// loop does all the work, until done is closed.
func (g *Gossip) loop(done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-g.in.wake:
		case <-timer.C:
		}
		next := g.turn()
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// turn takes up what came in, does what is due, and returns when something is due next,
// zero for never.
func (g *Gossip) turn() time.Time {
	g.state.Lock()
	defer g.state.Unlock()
	now := time.Now()
	in := g.in.take()
	// First those who went: of one agent two incarnations may change places.
	for _, there := range []bool{false, true} {
		for id, news := range in.members {
			for i, n := range news {
				if there == (i == len(news)-1 && !n.left) {
					g.news(id, n, now)
				}
			}
		}
	}
	for _, c := range in.leases {
		g.changeLease(c, now)
	}
	for _, f := range in.calls {
		f()
	}
	for _, packet := range in.packets {
		g.receive(packet, now)
	}
	for _, n := range g.roster.Tidy(now) {
		g.forget(n)
	}
	next := time.Time{}
	for _, due := range []func(time.Time) time.Time{g.leasesDue, g.keeperDue, g.asksDue, g.queriesDue, g.pairsDue, g.out.due} {
		next = earliest(next, due(now))
	}
	return next
}

// earliest returns the earlier of two times, ignoring zero ones.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// news takes in what the network tells of a member.
func (g *Gossip) news(id wire.MemberID, news memberNews, now time.Time) {
	if news.left {
		if n, change := g.roster.Leave(id, now); change != roster.Nothing {
			g.changed(n, change, now)
		}
		return
	}
	n, change, err := g.roster.Join(id, news.member.Member, now)
	switch {
	case errors.Is(err, roster.ErrFull):
		g.count.drop(dropNodes)
		return
	case err != nil:
		g.count.drop(dropName)
		return
	}
	if change != roster.Nothing {
		g.changed(n, change, now)
	}
}

// receive takes in a packet.
func (g *Gossip) receive(b []byte, now time.Time) {
	p, err := wire.Decode(b)
	if err != nil {
		g.count.drop(wire.Reason(err))
		if errors.Is(err, wire.ErrVersion) {
			g.heardForeign(p.Sender, now)
		}
		return
	}
	from := g.roster.Sender(p.Sender)
	switch {
	case from == g.roster.Self():
		g.count.drop(dropSelf)
		return
	case from == nil:
		g.count.drop(dropStranger)
		g.network.Seek(p.Sender)
		return
	case !g.heard(from, now):
		g.count.drop(dropPackets)
		return
	case !from.Alive:
		g.network.Seek(from.Member)
	default:
		g.back(from, now)
	}
	switch p.Type {
	case wire.TypeLease:
		err = take(g, from, now, p.Leases, g.receiveLease)
	case wire.TypeAck:
		err = take(g, from, now, p.Acks, g.receiveAck)
	case wire.TypeRival:
		err = take(g, from, now, p.Rivals, g.receiveRival)
	case wire.TypeAsk:
		asks := func() ([]wire.Ask, error) { return p.Asks(g.id) }
		err = take(g, from, now, asks, g.receiveAsk)
	case wire.TypeVerified:
		err = take(g, from, now, p.Verifieds, g.receiveVerified)
	case wire.TypeQuery:
		err = take(g, from, now, p.Queries, g.receiveQuery)
	case wire.TypeAnswer:
		err = take(g, from, now, p.Answers, g.receiveAnswer)
	case wire.TypePair:
		err = take(g, from, now, p.Pairs, g.receivePair)
	}
	if err != nil {
		g.count.drop(wire.Reason(err))
	}
}

// take decodes the entries of a packet and hands each of them to what receives them.
func take[E wire.Entry](g *Gossip, from *roster.Node, now time.Time,
	decode func() ([]E, error), receive func(*roster.Node, E, time.Time),
) error {
	entries, err := decode()
	if err != nil || len(entries) == 0 {
		return err
	}
	g.count.receive(entries[0].Type(), len(entries))
	for _, e := range entries {
		receive(from, e, now)
	}
	return nil
}
