package gossip

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// forget has a keeper forget what another node leased, as if the leases had expired.
func (n *fakeNode) forget(other *fakeNode) {
	n.state.Lock()
	defer n.state.Unlock()
	n.holders.kept.Forget(n.roster.ByID(other.member.NodeID()))
}

// keepers counts what others than a node keep.
func keepers(nodes []*fakeNode, but *fakeNode) (kept int) {
	for _, n := range nodes {
		if n != but {
			kept += n.Status().Kept
		}
	}
	return kept
}

// An agent that was paused joins again and sends all leases again: its keepers may have dropped them, although it takes
// them for acknowledged.
func TestPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			pause time.Duration
			want  bool
		}{{maxLate - tick, false}, {maxLate + 2*tick, true}} {
			f := newFakeNet(t)
			nodes := f.startMany(6)
			a := nodes[0]
			time.Sleep(10 * time.Second)
			for i := range 20 {
				a.hold(testKey(i), 1)
			}
			time.Sleep(time.Second)
			before := keepers(nodes, a)
			a.pause(test.pause)
			a.hold(testKey(100), 1)
			time.Sleep(10 * time.Second)
			for _, n := range nodes[1:] {
				n.forget(a)
			}
			time.Sleep(test.pause - 9*time.Second)
			a.mu.Lock()
			rejoined := a.rejoined
			a.mu.Unlock()
			if kept := keepers(nodes, a); rejoined > 0 != test.want || (kept >= before) != test.want {
				t.Errorf("after a pause of %v: joined again %d times, %d of %d leases are kept", test.pause, rejoined, kept, before)
			}
			for _, n := range nodes {
				n.kill()
			}
		}
	})
}

// A duplicate that began while an agent was paused is found as soon as it is back.
func TestFoundAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		a, b := nodes[0], nodes[1]
		a.hold(testKey(1), 1)
		time.Sleep(10 * time.Second)
		a.pause(6 * time.Minute)
		a.hold(testKey(2), 1)
		began := time.Now()
		time.Sleep(5 * time.Minute)
		for _, n := range nodes[1:] {
			n.handler.Left(a.member, false)
		}
		f.set(func() { f.cut = func(from, to string) bool { return from == "node-0" || to == "node-0" } })
		b.hold(testKey(1), 2)
		time.Sleep(time.Until(began.Add(6 * time.Minute)))
		for _, n := range nodes[1:] {
			n.forget(a)
			n.handler.Joined(a.member)
		}
		f.set(func() { f.cut = nil })
		eventually(t, time.Second, "notices", func() bool { return a.knows(testKey(1), "node-1")() && b.knows(testKey(1), "node-0")() })
	})
}

// A keeper that took a node for dead requests its leases when the same incarnation is there again: the node itself may
// have noticed nothing. It does so until the request is acknowledged.
func TestResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		a := nodes[0]
		for i := range 10 {
			a.hold(testKey(i), 1)
		}
		time.Sleep(10 * time.Second)
		keeper := nodes[1+slices.IndexFunc(nodes[1:], func(n *fakeNode) bool { return n.Status().Kept > 2 })]
		before := keeper.Status().Kept
		keeper.handler.Left(a.member, false)
		time.Sleep(time.Second)
		keeper.forget(a)
		resends := 0
		f.set(func() {
			f.drop = func(_, _ string, p wire.Packet) bool {
				resends += len(p.Resends)
				return len(p.Resends) > 0 && resends < 3
			}
		})
		keeper.handler.Joined(a.member)
		eventually(t, 2*time.Second, "all leases again", func() bool { return keeper.Status().Kept == before })
		time.Sleep(time.Minute)
		f.set(func() {
			if f.drop = nil; resends != 3 || a.Status().Received["resend"] != 1 {
				t.Errorf("requested %d times", resends)
			}
		})
		// One that requests them without end gets them every two seconds.
		sent := a.sent(wire.KindLease)
		for range 100 {
			a.from(keeper.member.ID, wire.Resend{Seq: 1})
			time.Sleep(100 * time.Millisecond)
		}
		if n := a.sent(wire.KindLease) - sent; n > uint64(before)*6 || n < uint64(before)*4 {
			t.Errorf("sent %d leases, %d each time", n, before)
		}
	})
}

// Agents that start anew, or meet for the first time, send their leases anyway.
func TestNoResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		nodes[1].kill()
		f.start("node-1", testBoot, 2)
		time.Sleep(10 * time.Second)
		for _, n := range nodes {
			if n.sent(wire.KindResend) != 0 {
				t.Errorf("%s requested leases", n.member.Name)
			}
		}
	})
}

// A keeper that took a node for dead for a moment notifies it of what it missed.
func TestTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		nodes[0].hold(testKey(1), 1)
		time.Sleep(10 * time.Second)
		for _, n := range nodes[1:] {
			n.handler.Left(nodes[0].member, false)
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "node-0" } }) // what the newcomer sends gets lost
		nodes[1].hold(testKey(1), 2)
		time.Sleep(time.Second)
		nodes[2].kill()
		f.set(func() { f.cut = nil })
		nodes[1].handler.Joined(nodes[0].member)
		eventually(t, 100*time.Millisecond, "a notice", nodes[0].knows(testKey(1), "node-1"))
	})
}

// A member is suspect while it leaves at least three of our messages without an answer for three seconds. One to which
// nothing is sent is alive.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		a := nodes[0]
		time.Sleep(10 * time.Second)
		state := func(name string) cluster.State {
			for _, m := range a.Members() {
				if m.Name == name {
					return m.State
				}
			}
			return ""
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "node-1" || to == "node-2" } })
		time.Sleep(time.Minute)
		if state("node-1") != cluster.Alive {
			t.Error("one to which nothing was sent is suspect")
		}
		f.set(func() { f.cut = func(_, to string) bool { return to == "node-1" } })
		a.hold(testKey(1), 1) // all keep it
		time.Sleep(suspectAfter - 100*time.Millisecond)
		if state("node-1") != cluster.Alive {
			t.Error("it is suspect too early")
		}
		time.Sleep(200 * time.Millisecond)
		s := a.Status()
		if state("node-1") != cluster.Suspect || state("node-2") != cluster.Alive || state("node-0") != cluster.Alive || s.Members[cluster.Suspect] != 1 || s.Members[cluster.Alive] != 2 {
			t.Errorf("states %s, %s; %v", state("node-1"), state("node-2"), s.Members)
		}
		time.Sleep(lateAfter)
		s = a.Status()
		if s.Unacked != 1 || len(s.Problems) != 1 || s.Problems[0] != "1 leases are not acknowledged by node-1: check the agents and the network there" {
			t.Errorf("%d not acknowledged, problems %q", s.Unacked, s.Problems)
		}
		f.set(func() { f.cut = nil })
		time.Sleep(6 * time.Second)
		if s := a.Status(); state("node-1") != cluster.Alive || s.Unacked != 0 || len(s.Problems) != 0 {
			t.Errorf("it is back: %+v", s)
		}
	})
}
