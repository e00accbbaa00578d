package members

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// A member whose news was lost is known soon after its first message, and the log says so.
func TestUnknownMember(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 7)
		time.Sleep(5 * time.Minute) // from then on memberlist exchanges lists seldom
		deaf := nodes[6]
		for i := range 5 {
			a.lose(func(from, to netip.AddrPort, stream bool) bool {
				return to == deaf.address() || stream && from == deaf.address()
			})
			joined := open(t, a, 8+i, func(o *Options) { o.Join = []string{airAddress(1).String()} })
			nodes = append(nodes, joined)
			time.Sleep(3 * time.Second) // so long its news travels
			if deaf.count() == len(nodes) {
				t.Fatal("the news came all the same")
			}
			a.lose(nil)
			joined.transport.Send(deaf.self.ID, deaf.address(), []byte("hello")) //nolint:errcheck // it is there
			// The others may lack the news, too, until the next exchange of lists.
			took := within(t, "it is known", time.Minute, func() bool { return deaf.count() == len(nodes) })
			if took > newsTime+time.Second {
				t.Errorf("known after %s", took)
			}
			time.Sleep(time.Minute)
		}
		if !strings.Contains(deaf.log.String(), "received messages from an unknown member") {
			t.Errorf("the log:\n%s", deaf.log)
		}
	})
}

// A member that was taken for dead, as after a partition, is known at once when it sends something.
func TestLostMember(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 3)
		lost := nodes[2]
		for range 5 {
			a.lose(func(from, to netip.AddrPort, _ bool) bool { return (from == lost.address()) != (to == lost.address()) })
			within(t, "it is given up", time.Minute, func() bool { return nodes[0].count() == 2 && lost.count() == 1 })
			time.Sleep(time.Minute)
			a.lose(nil)
			took := within(t, "it is there", time.Minute, func() bool {
				lost.transport.Send(nodes[0].self.ID, nodes[0].address(), []byte("hello")) //nolint:errcheck // as good as lost
				return nodes[0].count() == 3
			})
			if took > time.Second {
				t.Errorf("it took %s", took)
			}
			complete(t, time.Minute, nodes...)
			time.Sleep(time.Minute)
		}
	})
}

// Of a member whose news comes a little after its first message no list is requested.
func TestNewsComesLater(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 2)
		time.Sleep(time.Minute)
		third := prepare(t, a, 3, joining(nodes[1]))
		third.transport.Send(nodes[0].self.ID, nodes[0].address(), []byte("hello")) //nolint:errcheck // it is there
		time.Sleep(newsTime / 2)
		third.run()
		complete(t, newsTime/2, append(nodes, third)...)
		time.Sleep(2 * newsTime)
		if nodes[0].log.String() != "" {
			t.Errorf("the log:\n%s", nodes[0].log)
		}
	})
}

// However many unknown members send something, lists are requested seldom, and the next one is found all the same.
func TestManyUnknownMembers(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 3)
		time.Sleep(time.Minute)
		before := a.streamsTo(nodes[1].address())
		for n := range 60_000 { // ten minutes
			nodes[0].receivedUnknown(wire.MemberID(n%30_000), nodes[1].address())
			time.Sleep(10 * time.Millisecond)
		}
		// Memberlist's own exchanges are among them.
		if got := a.streamsTo(nodes[1].address()) - before; got < 5 || got > 40 {
			t.Errorf("%d exchanges in ten minutes", got)
		}
		time.Sleep(maxRequestPause * 6 / 5)
		var unknown *node
		own := nodes[0].address()
		a.lose(func(from, to netip.AddrPort, stream bool) bool { return to == own || stream && from == own })
		unknown = open(t, a, 4, joining(nodes[1]))
		time.Sleep(3 * time.Second)
		a.lose(nil)
		unknown.transport.Send(nodes[0].self.ID, own, []byte("hello")) //nolint:errcheck // it is there
		complete(t, newsTime+time.Second, append(nodes, unknown)...)
		if lines := strings.Count(nodes[0].log.String(), "\n"); lines > 20 {
			t.Errorf("%d lines of log", lines)
		}
	})
}

func TestLargeClustersRequestSeldom(t *testing.T) {
	for members, want := range map[int]time.Duration{2: 5 * time.Second, 32: 5 * time.Second, 33: 10 * time.Second, 5000: 45 * time.Second} {
		inAir(t, func(t *testing.T, a *air) {
			n := open(t, a, 1)
			fill(n, members-1)
			next := func() time.Time {
				n.returned.mu.Lock()
				defer n.returned.mu.Unlock()
				return n.returned.next
			}
			n.joins.lost(airAddress(9), time.Now())
			n.receivedUnknown(1<<40, airAddress(9))
			within(t, "the request has failed", time.Minute, func() bool { return !next().IsZero() })
			// After one in vain the pause has doubled.
			if pause := time.Until(next()); pause < 2*want*7/10 || pause > 2*want*12/10 {
				t.Errorf("%d members: %s until the next request", members, pause)
			}
		})
	}
}
