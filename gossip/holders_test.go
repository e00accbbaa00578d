package gossip

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

// Two nodes lease one address: each is notified of the other's holder, and requests a probe.
func TestTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(5)
		a, b := nodes[0], nodes[1]
		time.Sleep(10 * time.Second)
		bindings := map[*fakeNode]cluster.Binding{a: a.hold(testKey(1), 1), b: b.hold(testKey(1), 2)}
		for _, pair := range [][2]*fakeNode{{a, b}, {b, a}} {
			n, other := pair[0], pair[1]
			eventually(t, time.Second, "a notice", func() bool { m, _ := messages[cluster.ConflictNotice](n); return len(m) > 0 })
			notices, _ := messages[cluster.ConflictNotice](n)
			want := cluster.ConflictNotice{Key: testKey(1), Bindings: []cluster.Binding{bindings[other]}}
			same := gocmp.Comparer(func(a, b detector.Key) bool { return a == b })
			if diff := gocmp.Diff(want, notices[0], cmpopts.EquateApproxTime(100*time.Millisecond), same); diff != "" {
				t.Errorf("notice of %s (-want +got):\n%s", n.member.Name, diff)
			}
		}
		for _, n := range nodes[2:] {
			if m, _ := messages[cluster.ConflictNotice](n); len(m) > 0 {
				t.Errorf("%s was notified of %v", n.member.Name, m)
			}
		}
		b.answers(func(cluster.ProbeRequest) cluster.ProbeReply {
			return cluster.ProbeReply{Outcome: detector.Answered, At: time.Now(), Binding: bindings[b]}
		})
		s := detector.Probe{Key: testKey(1), Holder: bindings[b].Holder.ID, Round: 7}
		a.RequestProbe(s, []cluster.Binding{bindings[a]})
		eventually(t, time.Second, "a reply", func() bool { m, _ := messages[cluster.ProbeReply](a); return len(m) > 0 })
		if m, _ := messages[cluster.ProbeReply](a); m[0].Probe != s || m[0].Outcome != detector.Answered {
			t.Errorf("reply %+v", m[0])
		}
		if q, _ := messages[cluster.ProbeRequest](b); len(q) != 1 || q[0].From != a.member.NodeID() || len(q[0].Bindings) != 1 {
			t.Errorf("requests %+v", q)
		}
		for _, n := range nodes {
			if s := n.Status(); s.Unacked > 0 || len(s.Problems) > 0 || len(s.Dropped) > 0 {
				t.Errorf("status of %s: %+v", n.member.Name, s)
			}
		}
	})
}

// The acknowledgement of a lease has the other holders: the second one is informed after one round trip.
func TestAckNamesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		time.Sleep(10 * time.Second)
		nodes[0].hold(testKey(1), 1)
		time.Sleep(time.Second)
		f.set(func() {
			f.delay = 100 * time.Millisecond // at most, to and fro
			f.drop = func(_, _ string, p wire.Packet) bool { return len(p.Notices) > 0 }
		})
		// One that keeps the address itself need not wait at all.
		second := nodes[1+slices.IndexFunc(nodes[1:], func(n *fakeNode) bool { return n.Status().Kept == 0 })]
		second.hold(testKey(1), 2)
		took := eventually(t, 220*time.Millisecond, "the other holder", second.knows(testKey(1), "node-0"))
		if took < 100*time.Millisecond {
			t.Errorf("after %v", took)
		}
	})
}

// A conflict notice is sent again until it is acknowledged, and no more then.
func TestNoticeIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(8)
		time.Sleep(10 * time.Second)
		first, second := nodes[0], nodes[1]
		first.hold(testKey(1), 1)
		time.Sleep(time.Second)
		var sent []time.Duration
		lost, began := 3, time.Now()
		f.set(func() {
			f.drop = func(_, to string, p wire.Packet) bool {
				if len(p.Notices) == 0 || to != "node-0" {
					return false
				}
				sent = append(sent, time.Since(began).Round(50*time.Millisecond))
				return len(sent) <= lost*3 // three keepers
			}
		})
		second.hold(testKey(1), 2)
		eventually(t, 2*time.Second, "a notice", first.knows(testKey(1), "node-1"))
		time.Sleep(time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		own := first.Status().Kept // a keeper of its own address needs no message
		if want := (lost + 1) * (3 - own); len(sent) < want || len(sent) > want+own {
			t.Errorf("sent at %v, want %d times", sent, want)
		}
		if m, _ := messages[cluster.ConflictNotice](first); len(m) > 3 {
			t.Errorf("%d notices", len(m))
		}
	})
}

// A notice about nodes that are not known yet is acknowledged, and when one of them is known its holders are asked for.
func TestNoticeAboutUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		time.Sleep(10 * time.Second)
		a, b, c := nodes[0], nodes[1], nodes[2]
		a.hold(testKey(1), 1)
		eventually(t, time.Second, "all acknowledged", func() bool { return a.unacked() == 0 })
		notice := func(about ...string) wire.Notice {
			n := wire.Notice{Seq: 7, Key: testKey(1), Total: 2}
			for _, id := range about {
				b := b.binding(7)
				b.Holder.ID.Node = id
				n.Others = append(n.Others, b)
			}
			return n
		}
		keeper := nodes[1+slices.IndexFunc(nodes[1:], func(n *fakeNode) bool { return n.Status().Kept > 0 })]
		for _, test := range []struct {
			about          []string
			acked, notices int
		}{
			{[]string{"x/y"}, 1, 0},
			{[]string{"x/y", c.member.NodeID()}, 1, 1},
			{[]string{a.member.NodeID()}, 1, 0},
			{nil, 1, 0},
		} {
			a.forgetMessages()
			acks := a.sent(wire.KindAck)
			a.from(keeper.member.ID, notice(test.about...))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			got, _ := messages[cluster.ConflictNotice](a)
			if n := a.sent(wire.KindAck) - acks; int(n) != test.acked || len(got) != test.notices || len(got) > 0 && len(got[0].Bindings) != 1 {
				t.Errorf("about %v: %d acknowledgements, notices %+v", test.about, n, got)
			}
		}
		if a.dropped(dropAbout) != 2 || a.dropped(dropOurs) != 1 {
			t.Errorf("dropped %v", a.Status().Dropped)
		}
		// When the node is known its holders are asked for.
		leases := a.sent(wire.KindLease)
		f.startMember(cluster.Member{Name: "x", Boot: "y", Address: "x:7951", Role: cluster.Reporter}) // which keeps no leases
		time.Sleep(100 * time.Millisecond)
		if n, want := a.sent(wire.KindLease)-leases, uint64(3-a.Status().Kept); n != want { // a keeper of its own address needs no message
			t.Errorf("%d leases were sent again, want %d", n, want)
		}
		// Invented nodes take little room.
		for i := range 4 * maxUnknown {
			a.from(keeper.member.ID, notice(fmt.Sprintf("x%d/y", i)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := a.holders.unknown.Len(); n < maxUnknown || n > 2*maxUnknown {
			t.Errorf("%d unknown nodes are remembered", n)
		}
	})
}

// The agent is notified of a node that leaves in order, not of one that dies, and what keepers say of the holders of one that left waits for
// its next agent.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(5)
		a, b, c := nodes[0], nodes[1], nodes[2]
		time.Sleep(10 * time.Second)
		a.hold(testKey(1), 1)
		b.hold(testKey(1), 2)
		time.Sleep(time.Second)
		b.leave()
		c.kill()
		time.Sleep(time.Second)
		if m, _ := messages[cluster.Stopped](a); len(m) != 1 || m[0].Node != b.member.NodeID() {
			t.Errorf("stopped: %+v", m)
		}
		a.forgetMessages()
		time.Sleep(4 * time.Minute) // all leases are refreshed, and their keepers name the others
		if m, _ := messages[cluster.ConflictNotice](a); len(m) != 0 {
			t.Errorf("notices %+v", m)
		}
		f.start("node-1", testBoot, 2).hold(testKey(1), 2)
		eventually(t, 2*time.Second, "a notice", a.knows(testKey(1), "node-1"))
	})
}

// A keeper records a withdrawal also while its agent has no room for the news, which comes when it has.
func TestWithdrawnWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newFakeNet(t).startMany(2)
		a, b := nodes[0], nodes[1]
		held := a.hold(testKey(1), 7)
		b.hold(testKey(1), 8)
		time.Sleep(10 * time.Second)
		limit := func(r rate.Limit, burst int) {
			b.state.Lock()
			defer b.state.Unlock()
			b.peers.of(b.roster.ByID(a.member.NodeID())).messages = rate.NewLimiter(r, burst)
		}
		limit(0, 0)
		a.Withdraw(testKey(1), held.Holder.ID, []string{b.member.NodeID()})
		time.Sleep(time.Second)
		if m, _ := messages[cluster.ProbeReply](b); len(m) != 0 || b.Status().Kept != 1 {
			t.Errorf("received %+v, keeps %d", m, b.Status().Kept)
		}
		limit(messageRate, messageBurst)
		time.Sleep(10 * time.Second)
		if m, _ := messages[cluster.ProbeReply](b); len(m) != 1 || m[0].Outcome != detector.Gone {
			t.Errorf("received %+v", m)
		}
	})
}

// The end of a holder is sent to the nodes of other holders directly, until they acknowledge it.
func TestWithdrawToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		a, b, c := nodes[0], nodes[1], nodes[2]
		held := a.hold(testKey(1), 7)
		b.hold(testKey(1), 8)
		time.Sleep(10 * time.Second)
		ends := 0
		f.set(func() {
			f.drop = func(_, to string, p wire.Packet) bool {
				end := slices.ContainsFunc(p.Leases, func(l wire.Lease) bool { return l.Gone })
				if end && to == "node-1" {
					ends++
				}
				return end && ends < 3
			}
		})
		a.Withdraw(testKey(1), held.Holder.ID, []string{b.member.NodeID(), c.member.NodeID(), a.member.NodeID(), "x/y"})
		time.Sleep(30 * time.Second)
		m, _ := messages[cluster.ProbeReply](b)
		if len(m) != 1 || m[0].Outcome != detector.Gone || m[0].Probe != (detector.Probe{Key: testKey(1), Holder: held.Holder.ID}) {
			t.Errorf("received %+v", m)
		}
		if m, _ := messages[cluster.ProbeReply](c); len(m) != 0 {
			t.Errorf("one without a holder received %+v", m)
		}
		f.set(func() {
			if ends != 3 {
				t.Errorf("sent %d times", ends)
			}
		})
		// The address is back before it could be sent again.
		b.forgetMessages()
		a.hold(testKey(1), 7)
		time.Sleep(10 * time.Second)
		f.set(func() { ends = 0 })
		a.Withdraw(testKey(1), held.Holder.ID, []string{b.member.NodeID()})
		time.Sleep(50 * time.Millisecond)
		a.hold(testKey(1), 7)
		time.Sleep(time.Minute)
		f.set(func() {
			if m, _ := messages[cluster.ProbeReply](b); len(m) != 0 || ends != 1 {
				t.Errorf("sent %d times, received %+v", ends, m)
			}
		})
	})
}

func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t).start("alone", testBoot, 1)
		for i := range 200 {
			n.hold(testKey(i), 1)
		}
		time.Sleep(10 * time.Minute)
		s := n.Status()
		n.mu.Lock()
		packets := n.packets
		n.mu.Unlock()
		if packets != 0 || n.count() != 0 || s.Leases != 200 || s.Kept != 200 || s.Unacked != 0 || len(s.Problems) != 0 || len(s.Dropped) != 0 {
			t.Errorf("%d packets, status %+v", packets, s)
		}
	})
}

// Under loss and disorder every duplicate is found: leases and notices are sent again until they are acknowledged.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.loss, f.delay = 0.05, 50*time.Millisecond
		nodes := f.startMany(20)
		time.Sleep(10 * time.Second)
		for i := range 200 {
			nodes[i%20].hold(testKey(i), uint64(1+i))
		}
		unacked := func() (n int) {
			for _, node := range nodes {
				n += node.unacked()
			}
			return n
		}
		time.Sleep(5 * time.Second) // sent five times
		synctest.Wait()
		if n := unacked(); n > 2 {
			t.Errorf("%d leases of 200 are not acknowledged after 5 s", n)
		}
		eventually(t, 30*time.Second, "all leases acknowledged", func() bool { return unacked() == 0 })
		began := time.Now()
		for i := range 200 {
			nodes[(i+7)%20].hold(testKey(i), uint64(1000+i))
		}
		missing := func() (list []string) {
			for i := range 200 {
				for _, pair := range [][2]int{{i % 20, (i + 7) % 20}, {(i + 7) % 20, i % 20}} {
					n, other := nodes[pair[0]], nodes[pair[1]].member.Name
					if !n.knows(testKey(i), other)() {
						list = append(list, fmt.Sprintf("%s knows %v of %v, not %s", n.member.Name, n.othersOf(testKey(i)), testKey(i), other))
					}
				}
			}
			return list
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if list := missing(); len(list) > 0 {
			t.Errorf("after a second, of 400:\n%s", strings.Join(list, "\n"))
		}
		var slowest time.Duration
		for _, n := range nodes {
			_, at := messages[cluster.ConflictNotice](n)
			for _, when := range at {
				slowest = max(slowest, when.Sub(began))
			}
		}
		t.Logf("the last was notified after %v", slowest)
	})
}

// With a namesake that is another agent of the same machine, and members that change, nothing is counted twice.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		nodes[2].kill()
		again := nodes[1].member
		again.Epoch, again.Address = 2, "node-1:7952"
		again.ID = wire.MemberIDOf(again.Name, again.Boot, again.Epoch)
		nodes[0].handler.Joined(again)
		time.Sleep(time.Minute)
		var list []string
		for _, m := range nodes[0].Members() {
			list = append(list, fmt.Sprintf("%s/%d %s %v %v", m.Name, m.Epoch, m.State, m.Namesake, m.Self))
		}
		want := []string{"node-0/1 alive false true", "node-1/1 alive true false", "node-1/2 alive true false", "node-2/1 dead false false"}
		if !slices.Equal(list, want) {
			t.Errorf("members %q, want %q", list, want)
		}
		s := nodes[0].Status()
		if s.Members[cluster.Alive] != 3 || s.Members[cluster.Dead] != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "2 agents of node node-1 run on one machine") {
			t.Errorf("%+v", s)
		}
	})
}

// Members without number do not make the queue of changes longer than its bound.
func TestTooManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t).start("node", testBoot, 1)
		n.state.Lock()
		for i := range maxCalls + 100 {
			n.handler.Left(members.Member{ID: wire.MemberID(i + 10)}, false)
		}
		got := n.in.calls
		n.state.Unlock()
		if synctest.Wait(); got > maxCalls || n.dropped(dropCalls) == 0 {
			t.Errorf("%d wait, dropped %v", got, n.Status().Dropped)
		}
	})
}
