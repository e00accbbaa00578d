package gossip

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// Two nodes have 250 addresses in common. It costs little, and stays so.
func TestWholePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(20)
		time.Sleep(10 * time.Second)
		for i := range 250 {
			nodes[0].hold(testKey(i), uint64(i+1))
			nodes[1].hold(testKey(i), uint64(i+1))
		}
		eventually(t, time.Second, "all told", func() bool {
			return len(told250(nodes[0])) == 250 && len(told250(nodes[1])) == 250
		})
		sum := func() (rivals uint64, packets int) {
			for _, n := range nodes {
				rivals += n.sent(wire.TypeRival)
				n.mu.Lock()
				packets += n.packets
				n.mu.Unlock()
			}
			return rivals, packets
		}
		rivals, packets := sum()
		t.Logf("at once: %d rivals, %d packets", rivals, packets)
		// Three keepers tell both, and whoever comes first is told twice at most.
		if rivals > 250*3*4 || packets > 1000 {
			t.Errorf("%d rivals in %d packets", rivals, packets)
		}
		time.Sleep(10 * time.Minute)
		later, laterPackets := sum()
		t.Logf("in ten minutes: %d rivals, %d packets", later-rivals, laterPackets-packets)
		// Five or six refreshments of 250 leases of two nodes at three keepers.
		if later-rivals > 250*3*2*7*2 {
			t.Errorf("%d rivals in ten minutes", later-rivals)
		}
		for _, n := range nodes {
			for reason, dropped := range n.Status().Dropped {
				t.Errorf("%s dropped %d: %s", n.member.Name, dropped, reason)
			}
		}
	})
}

func told250(n *fakeNode) map[detector.Key]bool {
	rivals, _ := messages[cluster.ConflictNotice](n)
	keys := make(map[detector.Key]bool)
	for _, r := range rivals {
		keys[r.Key] = true
	}
	return keys
}

// One address on very many nodes: everybody learns of somebody, nobody of very many.
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
		var rivals uint64
		for _, node := range nodes {
			if len(node.rivalsOf(testKey(1))) == 0 {
				t.Errorf("%s was told nothing", node.member.Name)
			}
			if r, _ := messages[cluster.ConflictNotice](node); len(r) > 40 {
				t.Errorf("%s was told %d times", node.member.Name, len(r))
			}
			rivals += node.sent(wire.TypeRival)
		}
		t.Logf("%d rivals for %d nodes", rivals, n)
		if rivals > n*3*3 {
			t.Errorf("%d rivals for %d nodes", rivals, n)
		}
	})
}

// One that floods is bounded, and costs the others nothing.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		flooder := nodes[3]
		time.Sleep(10 * time.Second)
		seq := uint64(1 << 40)
		for range 2000 { // 10,000 packets of 50 leases in ten seconds, to node-0
			for range 5 {
				packet := wire.AppendHeader(nil, wire.Header{Type: wire.TypeLease, Sender: flooder.id})
				for range 50 {
					seq++
					packet = wire.Lease{Seq: seq, Key: testKey(int(seq % 65536)), Claim: wire.Claim{
						Holder: wire.Holder{Netns: seq}, Evidence: detector.Data,
					}}.Append(packet)
				}
				if err := (fakePort{flooder}).Send(nodes[0].id, packet); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		s := nodes[0].Status()
		if s.Kept > 16384 || s.Dropped["lease rate of a node"] == 0 {
			t.Errorf("kept %d, dropped %v", s.Kept, s.Dropped)
		}
		nodes[1].hold(testKey(70000), 1)
		nodes[2].hold(testKey(70000), 1)
		eventually(t, time.Second, "rivals", func() bool {
			return nodes[1].knows(testKey(70000), "node-2")() && nodes[2].knows(testKey(70000), "node-1")()
		})
	})
}

// Garbage, strangers and forgeries are dropped and counted.
func TestHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		a, b, c := nodes[0], nodes[1], nodes[2]
		time.Sleep(10 * time.Second)
		rival := wire.Rival{Key: testKey(1), Total: 2, Claims: []wire.Claim{{
			Holder: wire.Holder{Member: b.id, Netns: 1}, Evidence: detector.Data,
		}}}
		about := func(id wire.MemberID) wire.Rival {
			r := rival
			r.Claims = slices.Clone(r.Claims)
			r.Claims[0].Holder.Member = id
			return r
		}
		lease := wire.Lease{Seq: 1, Key: testKey(2), Claim: wire.Claim{Holder: wire.Holder{Netns: 1}, Evidence: detector.Data}}
		a.hold(testKey(3), 1)
		held := about(b.id)
		held.Key = testKey(3)
		stranger, self := held, held
		stranger.Claims = about(12345).Claims
		self.Claims = about(a.id).Claims
		for _, test := range []struct {
			reason string
			packet []byte
		}{
			{"magic", []byte("hello")},
			{"malformed", wire.Encode(b.id, lease)[:20]},
			{"oversize", make([]byte, wire.MaxPacket+1)},
			{dropStranger, wire.Encode(12345, lease)},
			{dropSelf, wire.Encode(a.id, lease)},
			{dropNoHolder, wire.Encode(b.id, rival)},
			{dropUnknown, wire.Encode(b.id, stranger)},
			{dropOurs, wire.Encode(b.id, self)},
			{dropUnasked, wire.Encode(b.id, wire.Verified{
				ID: 7, Key: testKey(3), Outcome: cluster.Gone, Claim: wire.Claim{Holder: wire.Holder{Netns: 1}},
			})},
			{dropNoHolder, wire.Encode(b.id, wire.Verified{
				Key: testKey(1), Outcome: cluster.Gone, Claim: wire.Claim{Holder: wire.Holder{Netns: 1}},
			})},
		} {
			synctest.Wait()
			before := a.Status().Dropped[test.reason]
			a.handler.Packet(test.packet)
			synctest.Wait()
			if got := a.Status().Dropped[test.reason]; got != before+1 {
				t.Errorf("%s: counted %d before and %d after", test.reason, before, got)
			}
		}
		if len(a.told) != 0 {
			t.Errorf("told %v", a.told)
		}
		a.mu.Lock()
		if !slices.Equal(a.sought, []wire.MemberID{12345, 12345}) {
			t.Errorf("sought %v, want the one that nobody has told of: it sent a packet, and a keeper names it", a.sought)
		}
		a.mu.Unlock()
		// As many lies about one address as a keeper may tell are looked into.
		ofC := about(c.id)
		ofC.Key = testKey(3)
		for range 3 * keyRivals {
			a.handler.Packet(wire.Encode(b.id, ofC))
		}
		synctest.Wait()
		if rivals, _ := messages[cluster.ConflictNotice](a); len(rivals) != keyRivals-2 {
			t.Errorf("told of %d rivals, want %d", len(rivals), keyRivals-2)
		}
	})
}

// Only keepers tell of rivals.
func TestRivalOfNoKeeper(t *testing.T) {
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
			a.handler.Packet(wire.Encode(liar.id, wire.Rival{Key: testKey(i), Total: 2, Claims: []wire.Claim{{
				Holder: wire.Holder{Member: nodes[2].id, Netns: 1}, Evidence: detector.Data,
			}}}))
		}
		synctest.Wait()
		rivals, _ := messages[cluster.ConflictNotice](a)
		dropped := a.Status().Dropped[dropNoKeeper]
		if len(rivals)+int(dropped) != 100 || len(rivals) < 20 || len(rivals) > 60 {
			t.Errorf("told of %d rivals, dropped %d; want about 37 and the rest", len(rivals), dropped)
		}
	})
}

// Nobody acknowledges that it was told of rivals, so news is told twice.
func TestNewsIsToldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(8)
		time.Sleep(10 * time.Second)
		nodes[0].hold(testKey(1), 1)
		nodes[1].hold(testKey(1), 2)
		sent := func() (n uint64) {
			for _, node := range nodes {
				n += node.sent(wire.TypeRival)
			}
			return n
		}
		time.Sleep(rivalsAgain / 2)
		first := sent()
		time.Sleep(2 * rivalsAgain)
		if all := sent(); first == 0 || all != 2*first {
			t.Errorf("%d rivals at first, %d in all: want twice as many", first, all)
		}
	})
}

// A member that is heard although it is taken for dead is sought, one that is there is not.
func TestHeardThoughDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		sought := func() int {
			nodes[0].mu.Lock()
			defer nodes[0].mu.Unlock()
			return len(nodes[0].sought)
		}
		nodes[1].hold(testKey(1), 1)
		time.Sleep(10 * time.Second)
		if n := sought(); n != 0 {
			t.Errorf("sought %d times while it is there", n)
		}
		nodes[0].handler.Left(nodes[1].member, false)
		time.Sleep(time.Second)
		nodes[1].hold(testKey(2), 2)
		time.Sleep(time.Second)
		if sought() == 0 || nodes[0].sought[0] != nodes[1].member.ID {
			t.Errorf("sought %v, want the one that was heard", nodes[0].sought)
		}
	})
}
