package members

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

// Somebody who has the key is at an address of its own, sees no packets of others, and may forge the source of its own.

// somewhere opens a member whose packets come from another address than the one that it advertises.
func somewhere(a *air, at netip.AddrPort) func(*Options) {
	return func(o *Options) { o.Sockets = a.listen(at) }
}

// times counts a change.
func (n *node) times(c string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.changes {
		if other == c {
			count++
		}
	}
	return count
}

// tell sends a node, from time to time, what another one is to receive.
func (n *node) tell(t *testing.T, to *node, limit time.Duration) {
	t.Helper()
	text := fmt.Sprint("told at ", time.Now())
	within(t, to.self.Name+" receives what "+n.self.Name+" sends", limit, func() bool {
		n.Send(to.self.ID, []byte(text)) //nolint:errcheck // as good as lost
		time.Sleep(200 * time.Millisecond)
		return to.got(text)
	})
}

// A member by the name of another one, of another boot, at the address of that one.
func TestMemberAtForeignAddress(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 3)
		time.Sleep(time.Minute)
		rogue := open(t, a, 2, joining(nodes[0]), somewhere(a, airAddress(99)), func(o *Options) { o.Boot = "other" })
		time.Sleep(time.Second)
		rogue.stop()
		time.Sleep(time.Minute)
		for _, n := range []*node{nodes[0], nodes[2]} {
			if got := n.times("+n2"); got != 1 {
				t.Errorf("%s: n2 joined %d times: %v", n.self.Name, got, n.changes)
			}
			nodes[1].tell(t, n, time.Second)
		}
	})
}

// Sixty invented members, at addresses that nobody has.
func TestInventedMembers(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 3)
		for i := range 60 {
			open(t, a, 100+i, joining(nodes[0]), somewhere(a, airAddress(1000+i)))
		}
		time.Sleep(time.Minute)
		for _, n := range nodes {
			if slices.ContainsFunc(n.changes, func(c string) bool { return strings.HasPrefix(c, "+n1") && len(c) > 3 }) {
				t.Errorf("%s: %v", n.self.Name, n.changes)
			}
			if got := len(n.agents()); got != 2 { // what is remembered over a restart
				t.Errorf("%s: %d agents", n.self.Name, got)
			}
			if n.count() > 50 && !strings.Contains(n.problems(), "allow UDP and TCP 7951") {
				t.Errorf("%s: no problem: %q", n.self.Name, n.problems())
			}
		}
		late := open(t, a, 4, joining(nodes[0]))
		within(t, "one that comes is known", 10*time.Second, func() bool { return nodes[0].saw("+n4") && late.saw("+n1") })
	})
}

// forge sends datagrams in the name of a member, from an address, until the test ends.
func forge(t *testing.T, a *air, of, to *node, from netip.AddrPort, pause time.Duration) {
	t.Helper()
	forged, err := transport.New(transport.Options{
		Log: slog.New(slog.DiscardHandler), ID: of.self.ID, Label: "test", KeyFile: testKey(), MemberID: nameID, Handler: of,
		Sockets: &port{air: a, at: from, closed: make(chan struct{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); forged.Shutdown() })
	for range 10_000 { // beyond the window of the real one
		forged.Send(to.self.ID, to.address(), []byte("forged")) //nolint:errcheck // as good as lost
		time.Sleep(time.Microsecond)
	}
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(pause):
				forged.Send(to.self.ID, to.address(), []byte("forged")) //nolint:errcheck // as good as lost
			}
		}
	}()
}

// Datagrams with any numbers in the name of a member, also from its own address, neither count as that member's nor keep it out.
func TestForgedNumbers(t *testing.T) {
	for _, from := range []netip.AddrPort{airAddress(99), airAddress(2)} {
		inAir(t, func(t *testing.T, a *air) {
			nodes := openCluster(t, a, 3)
			time.Sleep(time.Minute)
			forge(t, a, nodes[1], nodes[0], from, 5*time.Millisecond)
			for range 10 {
				nodes[1].tell(t, nodes[0], time.Second)
			}
			if nodes[0].got("forged") {
				t.Errorf("what was forged from %s counts", from)
			}
		})
	}
}

// message is one of memberlist's, with its fields by name: numbers, texts and bytes.
func message(kind byte, fields ...any) []byte {
	b := []byte{kind, 0x80 | byte(len(fields)/2)}
	for _, field := range fields {
		switch v := field.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
		case string:
			b = append(append(b, 0xd9, byte(len(v))), v...)
		case []byte:
			b = append(append(b, 0xc4, byte(len(v))), v...)
		}
	}
	return b
}

// dead and leaving are what somebody says of a member.
func dead(of *node, n int) []byte {
	return message(5, "Incarnation", 1000*n, "Node", of.list.LocalNode().Name, "From", "n9/0000000000000009")
}

func leaving(of *node, n int) []byte {
	d, at := of.metadata(), of.address()
	d.Leaving = true
	return message(4, "Incarnation", 1000*n, "Node", of.list.LocalNode().Name, "Addr", at.Addr().AsSlice(),
		"Port", int(at.Port()), "Meta", wire.Marshal(d), "Vsn", []byte{1, 5, 2, 0, 0, 0})
}

// What others say of a member's death or leaving changes nothing while it answers.
func TestForgedDeath(t *testing.T) {
	for name, say := range map[string]func(*node, int) []byte{"dead": dead, "leaving": leaving} {
		t.Run(name, func(t *testing.T) {
			inAir(t, func(t *testing.T, a *air) {
				nodes := openCluster(t, a, 4)
				time.Sleep(time.Minute)
				rogue, of := nodes[3], nodes[1]
				for round := range 20 {
					for _, n := range []*node{nodes[0], nodes[2]} {
						to := memberlist.Address{Addr: n.self.Address, Name: n.list.LocalNode().Name}
						if _, err := rogue.transport.WriteToAddress(say(of, round+1), to); err != nil {
							t.Fatal(err)
						}
						of.tell(t, n, time.Second)
					}
					time.Sleep(time.Second)
				}
				complete(t, time.Minute, nodes...)
				for _, n := range []*node{nodes[0], nodes[2]} {
					if n.times("+n2") != 1 || n.saw("-n2") || n.saw("=n2") {
						t.Errorf("%s: %v", n.self.Name, n.changes)
					}
				}
				// One that really dies is gone as before.
				of.kill()
				within(t, "it is dead", 30*time.Second, func() bool { return nodes[0].saw("-n2") && nodes[2].saw("-n2") })
			})
		})
	}
}
