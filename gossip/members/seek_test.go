package members

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// Whoever is heard although it is taken for dead is there again at once, whenever that is.
func TestSeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		var nodes []*node
		for i := 1; i <= 3; i++ {
			nodes = append(nodes, open(t, i, on(a, airAddress(i)), func(o *Options) { o.Join = []string{airAddress(1)} }))
		}
		whole := func() bool { return nodes[0].states() == "n1:alive n2:alive n3:alive" }
		within(t, "all are there", time.Minute, whole)
		lost := nodes[2].Self()
		for i := range 5 {
			a.set(func() {
				a.cut = func(from, to string) bool { return (from == lost.Address) != (to == lost.Address) }
			})
			time.Sleep(100*time.Second + time.Duration(i)*7*time.Second)
			a.set(func() { a.cut = nil })
			took := within(t, "it is there again", time.Minute, func() bool {
				nodes[0].Seek(lost.ID) // as with each packet from it
				return whole()
			})
			if took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}

// News of a member are told a few times and then no more: who missed them asks, once it is
// heard, and does not wait for the next exchange of all with somebody. Packets come as a holder
// sends its leases: at once, then three times again.
func TestStrangerIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		var nodes []*node
		whole := func() bool {
			return !slices.ContainsFunc(nodes, func(n *node) bool { return strings.Count(n.states(), ":alive") != len(nodes) })
		}
		var told output
		for i := 1; i <= 7; i++ {
			nodes = append(nodes, open(t, i, on(a, airAddress(i)), func(o *Options) {
				o.Join = []string{airAddress(1)}
				if i == 7 { // which is the deaf one
					o.Log = logTo(&told)
				}
			}))
		}
		within(t, "all are there", 2*time.Minute, whole)
		time.Sleep(time.Minute) // then they exchange all as it comes
		for i := 8; i <= 12; i++ {
			a.set(func() { a.loss = func(_, to string) bool { return to == airAddress(7) } })
			joined := open(t, i, on(a, airAddress(i)), func(o *Options) { o.Join = []string{airAddress(1)} })
			time.Sleep(1500 * time.Millisecond) // for so long they are told
			a.set(func() { a.loss = nil })
			go func(others []*node) {
				for _, pause := range []time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond, 3 * time.Second} {
					time.Sleep(pause)
					for _, n := range others {
						n.Seek(joined.Self().ID)
					}
				}
			}(slices.Clone(nodes))
			nodes = append(nodes, joined)
			took := within(t, "it is known to all", time.Minute, whole)
			t.Logf("%s after %v", joined.Self().Name, took)
			// The second question if the first one was to somebody who had missed it, too.
			if took > newsTime*5/4+2*askPause*6/5+time.Second {
				t.Errorf("it took %v", took)
			}
			time.Sleep(time.Minute)
		}
		if !strings.Contains(told.String(), "received packets from unknown members") {
			t.Error("it is not told")
		}
	})
}

// Nobody is asked for one whose news come a little later than its first packet.
func TestStrangerThatIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		var told output
		first := open(t, 1, on(a, airAddress(1)), func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		open(t, 2, on(a, airAddress(2)), func(o *Options) { o.Join = []string{airAddress(1)} })
		within(t, "two", time.Minute, func() bool { return first.states() == "n1:alive n2:alive" })
		third := prepare(t, 3, on(a, airAddress(3)), func(o *Options) { o.Join = []string{airAddress(2)} })
		first.Seek(third.Self().ID)
		time.Sleep(newsTime / 2)
		third.run()
		within(t, "three", newsTime/2, func() bool { return first.states() == "n1:alive n2:alive n3:alive" })
		time.Sleep(2 * newsTime)
		if strings.Contains(told.String(), "requesting the member list") || strings.Contains(told.String(), "received packets from unknown members") {
			t.Errorf("somebody was asked:\n%s", told.String())
		}
	})
}

// Whatever is heard, and however often: others are asked seldom.
func TestFloodOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		var nodes []*node
		for i := 1; i <= 3; i++ {
			nodes = append(nodes, open(t, i, on(a, airAddress(i)), func(o *Options) { o.Join = []string{airAddress(1)} }))
		}
		within(t, "all are there", time.Minute, func() bool { return nodes[0].states() == "n1:alive n2:alive n3:alive" })
		dials := func() int {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.dials[airAddress(1)]
		}
		time.Sleep(10 * time.Minute)
		before := dials()
		time.Sleep(10 * time.Minute)
		usual := dials() - before
		before = dials()
		for n := range 60_000 {
			nodes[0].Seek(wire.MemberID(n % 30_000))
			time.Sleep(10 * time.Millisecond)
		}
		if flooded := dials() - before; flooded == usual || flooded > usual+12 {
			t.Errorf("%d exchanges in ten minutes of strangers, %d without", flooded, usual)
		}
	})
}
