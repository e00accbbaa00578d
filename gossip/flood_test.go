package gossip

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// Two nodes have 500 addresses in common. It costs little, and stays so.
func TestWholePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shared = 500
		f := newFakeNet(t)
		nodes := f.startMany(20)
		time.Sleep(10 * time.Second)
		for i := range shared {
			nodes[0].hold(testKey(i), uint64(i+1))
			nodes[1].hold(testKey(i), uint64(i+1))
		}
		notified := func(n *fakeNode) int {
			notices, _ := messages[cluster.ConflictNotice](n)
			keys := make(map[detector.Key]bool)
			for _, m := range notices {
				keys[m.Key] = true
			}
			return len(keys)
		}
		took := eventually(t, time.Second, "all notified", func() bool { return notified(nodes[0])+notified(nodes[1]) == 2*shared })
		sum := func() (notices uint64, packets int) {
			for _, n := range nodes {
				notices += n.sent(wire.KindNotice)
				n.mu.Lock()
				packets += n.packets
				n.mu.Unlock()
			}
			return notices, packets
		}
		time.Sleep(time.Second)
		notices, packets := sum()
		t.Logf("after %v: %d notices, %d packets", took, notices, packets)
		// Three keepers notify the first holder.
		if notices > shared*3*2 || packets > 1500 {
			t.Errorf("%d notices in %d packets", notices, packets)
		}
		time.Sleep(10 * time.Minute)
		later, laterPackets := sum()
		t.Logf("in ten minutes: %d notices, %d packets", later-notices, laterPackets-packets)
		// The acknowledgements of refreshments are enough.
		if later-notices > shared {
			t.Errorf("%d notices in ten minutes", later-notices)
		}
		for _, n := range nodes {
			for reason, dropped := range n.Status().Dropped {
				t.Errorf("%s dropped %d: %s", n.member.Name, dropped, reason)
			}
		}
	})
}

// One address on very many nodes: everybody is notified of somebody, nobody of very many.
func TestEverybodyHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		const n = 200
		nodes := f.startMany(n)
		time.Sleep(10 * time.Second)
		for i, node := range nodes {
			node.hold(testKey(1), uint64(i+1))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var notices uint64
		for _, node := range nodes {
			if len(node.othersOf(testKey(1))) == 0 {
				t.Errorf("%s was notified of nothing", node.member.Name)
			}
			if m, _ := messages[cluster.ConflictNotice](node); len(m) > 40 {
				t.Errorf("%s was notified %d times", node.member.Name, len(m))
			}
			notices += node.sent(wire.KindNotice)
		}
		t.Logf("%d notices for %d nodes", notices, n)
		if notices > n*3*3 {
			t.Errorf("%d notices for %d nodes", notices, n)
		}
	})
}

// A node that floods has a quota of packets, of leases and of messages to the agent, and costs the others nothing.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		victim, flooder := nodes[0], nodes[3]
		time.Sleep(10 * time.Second)
		seq := uint64(1 << 40)
		flood := func(packets, perPacket int, message func() any) {
			for i := range packets {
				var list []any
				for range perPacket {
					seq++
					list = append(list, message())
				}
				victim.from(flooder.member.ID, list...)
				if i%25 == 0 {
					time.Sleep(2 * time.Millisecond) // 12,500 a second
				}
			}
			time.Sleep(20 * time.Second) // the quotas are full again
		}
		lease := func() any {
			b := flooder.binding(seq)
			return wire.Lease{Seq: seq, Key: testKey(int(seq % 65536)), Binding: b}
		}
		flood(7000, 6, lease)
		s := victim.Status()
		if s.Kept > 10000 || s.Kept < 5000 || s.Dropped["lease rate of a node"] == 0 || s.Dropped[dropPackets] == 0 {
			t.Errorf("kept %d, dropped %v", s.Kept, s.Dropped)
		}
		victim.hold(testKey(99), 1)
		for what, message := range map[string]func() any{
			"requests": func() any {
				return wire.ProbeRequest{ID: seq, Key: testKey(1), Holder: detector.HolderID{Node: victim.member.NodeID(), Netns: 1}}
			},
			"ends": func() any {
				return wire.Lease{Seq: seq, Key: testKey(99), Binding: flooder.binding(1), Gone: true}
			},
		} {
			victim.forgetMessages()
			flood(2000, 10, message)
			if n := victim.count(); n > messageBurst+3*messageRate || n < messageBurst/2 {
				t.Errorf("the agent received %d %s", n, what)
			}
		}
		if victim.dropped(dropMessages) == 0 {
			t.Errorf("dropped %v", victim.Status().Dropped)
		}
		nodes[1].hold(testKey(70000), 1)
		nodes[2].hold(testKey(70000), 1)
		eventually(t, time.Second, "notices", func() bool {
			return nodes[1].knows(testKey(70000), "node-2")() && nodes[2].knows(testKey(70000), "node-1")()
		})
	})
}

// Garbage, unknown members and forgeries are dropped and counted.
func TestHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		a, b := nodes[0], nodes[1]
		time.Sleep(10 * time.Second)
		a.hold(testKey(3), 1)
		time.Sleep(time.Second)
		about := func(key int, id string) wire.Notice {
			other := b.binding(1)
			other.Holder.ID.Node = id
			return wire.Notice{Seq: 1, Key: testKey(key), Total: 2, Others: []cluster.Binding{other}}
		}
		lease := wire.Lease{Seq: 1, Key: testKey(2), Binding: b.binding(1)}
		encoded := func(messages ...any) []byte {
			var p wire.Builder
			for _, m := range messages {
				p.Add(wire.Encode(m.(wire.Message), time.Now()))
			}
			return p.Bytes()
		}
		for _, test := range []struct {
			reason string
			from   wire.MemberID
			packet []byte
		}{
			{dropMalformed, b.member.ID, []byte("hello")},
			{dropMalformed, b.member.ID, nil},
			{dropMalformed, b.member.ID, encoded(lease)[:20]},
			{dropMalformed, b.member.ID, encoded(wire.Lease{Seq: 1, Key: testKey(2)})},
			{dropField, b.member.ID, []byte{0xa1, 0x18, 0x63, 0x80}},
			{dropUnknown, 12345, encoded(lease)},
			{dropUnknown, 0, encoded(lease)},
			{dropUnknown, a.member.ID, encoded(lease)},
			{dropNoHolder, b.member.ID, encoded(about(1, b.member.NodeID()))},
			{dropAbout, b.member.ID, encoded(about(3, "x/y"))},
			{dropOurs, b.member.ID, encoded(about(3, a.member.NodeID()))},
			{dropUnasked, b.member.ID, encoded(wire.ProbeReply{ID: 7, Key: testKey(3), Outcome: detector.Gone, Binding: b.binding(1)})},
			{dropForeign, b.member.ID, encoded(wire.ProbeRequest{ID: 1, Key: testKey(3), Holder: b.binding(1).Holder.ID})},
			{dropReporter, b.member.ID, encoded(wire.Report{Seq: 1, Summary: new(cluster.Summary)})},
		} {
			synctest.Wait()
			before := a.dropped(test.reason)
			a.handler.Receive(test.from, netip.AddrPort{}, test.packet)
			synctest.Wait()
			if got := a.dropped(test.reason); got != before+1 {
				t.Errorf("%s: counted %d before and %d after", test.reason, before, got)
			}
		}
		if n := a.count(); n != 0 {
			t.Errorf("the agent received %d messages", n)
		}
		// Acknowledgements of what was never sent, or to another node, do nothing.
		for seq := range uint64(10) {
			a.from(nodes[2].member.ID, wire.Ack{Seq: 1 << 40}, wire.Ack{Seq: seq, Others: about(3, b.member.NodeID()).Others})
		}
		synctest.Wait()
		if s := a.Status(); s.Leases != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Only keepers have a reason to send conflict notices.
func TestNoticeOfNoKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(8)
		time.Sleep(10 * time.Second)
		a, liar := nodes[0], nodes[1]
		// Of a hundred addresses it keeps three in eight.
		for i := range 100 {
			a.hold(testKey(i), 1)
		}
		time.Sleep(10 * time.Second)
		for i := range 100 {
			a.from(liar.member.ID, wire.Notice{Seq: 1, Key: testKey(i), Total: 2, Others: []cluster.Binding{nodes[2].binding(1)}})
		}
		synctest.Wait()
		notices, _ := messages[cluster.ConflictNotice](a)
		dropped := a.dropped(dropNoKeeper)
		if len(notices)+int(dropped) != 100 || len(notices) < 20 || len(notices) > 60 {
			t.Errorf("%d notices, dropped %d; want about 37 and the rest", len(notices), dropped)
		}
	})
}

// What this node's agent says of others' holders, or what others would not accept, is not leased.
func TestImpossibleLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t).startMany(2)[0]
		change := func(f func(*cluster.Lease)) cluster.Lease {
			l := cluster.Lease{Key: testKey(1), Binding: n.binding(1)}
			f(&l)
			return l
		}
		for _, l := range []cluster.Lease{
			change(func(l *cluster.Lease) { l.Key.Network = "" }),
			change(func(l *cluster.Lease) { l.Binding.Holder.ID.Netns = 0 }),
			change(func(l *cluster.Lease) { l.Binding.Holder.ID.Node = "x/y" }),
			change(func(l *cluster.Lease) { l.Binding.Evidence = detector.Forwarded }),
		} {
			n.Lease(l)
		}
		n.Withdraw(testKey(1), detector.HolderID{Node: "x/y", Netns: 1}, []string{"node-1/" + testBoot})
		n.Withdraw(testKey(1), n.binding(1).Holder.ID, []string{"node-1/" + testBoot})
		time.Sleep(time.Second)
		if s := n.Status(); s.Leases != 0 || s.Dropped[dropInvalid] != 5 || s.Sent["lease"] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A pod that gets and gives up addresses without end, while nobody acknowledges anything, makes nothing grow without end.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		n := f.startMany(5)[0]
		time.Sleep(10 * time.Second)
		f.set(func() { f.cut = func(_, _ string) bool { return true } })
		others := []string{cluster.NodeID("node-1", testBoot), cluster.NodeID("node-2", testBoot)}
		const rounds = 30000
		for i := range rounds {
			b := n.hold(testKey(i), uint64(i+1))
			if i%10 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			n.Withdraw(testKey(i), b.Holder.ID, others)
		}
		synctest.Wait()
		n.state.Lock()
		messages, packets := 0, len(n.post.packets)
		for m := range n.roster.All() {
			messages += len(n.post.RemoveAll(m))
		}
		n.state.Unlock()
		if most := 32768; messages > most || messages < 1000 || packets > maxWaiting {
			t.Errorf("%d messages, %d packets", messages, packets)
		}
		if s := n.Status(); s.Leases != 0 || s.Dropped[dropQueue] == 0 {
			t.Errorf("%d leases, dropped %v", s.Leases, s.Dropped)
		}
		t.Log(fmt.Sprint(messages, packets, n.Status().Dropped))
	})
}
