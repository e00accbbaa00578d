package gossip

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

// pairOf says that a node and another share so many addresses.
func (n *fakeNode) pairOf(other string, addresses int) cluster.Pair {
	p := cluster.Pair{A: n.member.NodeID(), B: cluster.NodeID(other, testBoot), Addresses: addresses, Since: time.Now().Add(-time.Minute)}
	for i := range min(addresses, 3) {
		p.Examples = append(p.Examples, testKey(i))
	}
	return p
}

// shown are the numbers of addresses by the pairs' nodes.
func (n *fakeNode) shown() map[string]int {
	m := make(map[string]int)
	for _, p := range n.Pairs() {
		m[cluster.NodeName(p.A)+" "+cluster.NodeName(p.B)] += p.Addresses
	}
	return m
}

// told counts what the node itself told to all, not what it passed on.
func (n *fakeNode) toldPairs(t *testing.T) (list []wire.Pair) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.broadcasts {
		p, err := wire.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		pairs, err := p.Pairs()
		if err != nil {
			t.Fatal(err)
		}
		if pairs[0].Origin == n.id {
			list = append(list, pairs...)
		}
	}
	return list
}

// loses changes the loss while the network is in use.
func (f *fakeNet) loses(part float64) {
	f.mu.Lock()
	f.loss = part
	f.mu.Unlock()
}

func TestPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(8)
		time.Sleep(time.Second)
		// What is lost on one way comes on another: some is lost by chance, and what the origin
		// sends to two nodes always, so that others have to pass it on. It is told again only
		// after a minute; with more loss somebody would miss it by chance until then.
		f.mu.Lock()
		f.loss = 0.1
		f.cut = func(from, to string) bool { return from == "node-2" && (to == "node-6" || to == "node-7") }
		f.mu.Unlock()
		want := nodes[2].pairOf("node-5", 250)
		nodes[2].Pair(want)
		at := time.Now()
		for _, n := range nodes {
			eventually(t, time.Second, "the pair at "+n.member.Name, func() bool { return n.shown()["node-2 node-5"] == 250 })
			p := n.Pairs()[0]
			near := cmpopts.EquateApproxTime(time.Second)
			compare := cmp.Comparer(func(a, b detector.Key) bool { return a == b })
			want.LastReceived = at
			if diff := cmp.Diff(want, p, near, compare); diff != "" {
				t.Errorf("%s (-want +got)\n%s", n.member.Name, diff)
			}
		}
		f.loses(0)
		// It is told again for as long as it is so.
		time.Sleep(10 * time.Minute)
		for _, n := range nodes {
			if got := n.shown(); len(got) != 1 {
				t.Errorf("%s shows %v after ten minutes", n.member.Name, got)
			}
		}
		if told := len(nodes[2].toldPairs(t)); told < 9 || told > 12 {
			t.Errorf("told %d times in ten minutes", told)
		}
		nodes[2].Pair(nodes[2].pairOf("node-5", 0))
		for _, n := range nodes {
			eventually(t, pairPause+time.Second, "no pair at "+n.member.Name, func() bool { return len(n.shown()) == 0 })
		}
		time.Sleep(pairTime + pairTick)
		for _, n := range nodes {
			n.state.Lock()
			if own, heard := len(n.pairs.own), len(n.pairs.heard); own+heard > 0 {
				t.Errorf("%s keeps %d and %d pairs that are over", n.member.Name, own, heard)
			}
			n.state.Unlock()
		}
	})
}

// TestPairForgotten: nobody is left to say that it is over.
func TestPairForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		nodes[0].Pair(nodes[0].pairOf("node-1", 2))
		eventually(t, time.Second, "the pair", func() bool { return len(nodes[2].shown()) == 1 })
		nodes[0].kill()
		took := eventually(t, pairTime+pairTick, "no pair", func() bool { return len(nodes[2].shown()) == 0 })
		if took < pairTime-pairRefresh {
			t.Errorf("forgotten after %v", took)
		}
	})
}

// TestPairRestart: the next agent of the node begins to count anew, and is heard.
func TestPairRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		for i := range 5 {
			nodes[0].Pair(nodes[0].pairOf("node-1", i+1))
			time.Sleep(pairPause)
		}
		nodes[0].kill()
		again := f.start("node-0", testBoot, 2)
		again.Pair(again.pairOf("node-1", 9))
		eventually(t, time.Second, "the pair as it is now", func() bool { return nodes[1].shown()["node-0 node-1"] == 9 })
	})
}

// TestPairOld: what was sent earlier and comes later is no news.
func TestPairOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		say := func(seq uint64, addresses int) {
			v := wire.Pair{A: nodes[0].member.NodeID(), B: nodes[1].member.NodeID(), Origin: nodes[0].id, Seq: seq, Addresses: addresses}
			nodes[2].handler.Packet(wire.Encode(nodes[1].id, v))
			synctest.Wait()
		}
		for i, step := range []struct {
			seq             uint64
			addresses, want int
		}{{5, 3, 3}, {4, 9, 3}, {5, 9, 3}, {6, 4, 4}, {8, 0, 0}, {7, 9, 0}, {9, 1, 1}} {
			say(step.seq, step.addresses)
			if got := nodes[2].shown()["node-0 node-1"]; got != step.want {
				t.Errorf("step %d: %d addresses, want %d", i, got, step.want)
			}
		}
		if got := len(nodes[2].broadcasts); got != 4 {
			t.Errorf("passed on %d times, want 4", got)
		}
	})
}

// TestPairRate: however often it changes, and however many there are, what is told is
// little, and in the end it is the truth.
func TestPairRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(31)
		// Of two ids the lesser one is that of node-0, always.
		n := nodes[0]
		for i := range 1000 {
			n.Pair(n.pairOf("node-1", i+1))
			time.Sleep(20 * time.Millisecond)
		}
		if told := len(n.toldPairs(t)); told < 2 || told > 3 {
			t.Errorf("told %d times in 20 s of changes", told)
		}
		for i := range 29 {
			n.Pair(n.pairOf(fmt.Sprintf("node-%d", i+2), 1))
		}
		time.Sleep(time.Second)
		if told := len(n.toldPairs(t)); told > 3+pairBurst+pairRate {
			t.Errorf("told %d times", told)
		}
		eventually(t, time.Minute, "all pairs are known", func() bool { return len(nodes[20].shown()) == 30 })
		if got := nodes[20].shown()["node-0 node-1"]; got != 1000 {
			t.Errorf("%d addresses, want 1000", got)
		}
	})
}

// TestPairRefused: nobody tells of other nodes' pairs, and there is room for so many only.
func TestPairRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		a, b, c, us := nodes[0], nodes[1], nodes[2], nodes[3]
		synctest.Wait()
		for _, test := range []struct {
			name   string
			p      wire.Pair
			reason string
		}{
			{"of the greater node", wire.Pair{A: a.member.NodeID(), B: b.member.NodeID(), Origin: b.id}, dropPair},
			{"of a third node", wire.Pair{A: a.member.NodeID(), B: b.member.NodeID(), Origin: c.id}, dropPair},
			{"in our name", wire.Pair{A: a.member.NodeID(), B: b.member.NodeID(), Origin: us.id}, dropPair},
			{"of a stranger", wire.Pair{A: a.member.NodeID(), B: b.member.NodeID(), Origin: 77}, dropUnknown},
			{"with a stranger", wire.Pair{A: a.member.NodeID(), B: "x/y", Origin: a.id}, dropUnknown},
			{"what is ours", wire.Pair{A: us.member.NodeID(), B: "node-4/b", Origin: us.id}, dropUnknown},
		} {
			before := us.Status().Dropped[test.reason]
			test.p.Seq, test.p.Addresses = 1, 1
			us.handler.Packet(wire.Encode(c.id, test.p))
			synctest.Wait()
			if us.Status().Dropped[test.reason] != before+1 || len(us.shown()) > 0 {
				t.Errorf("%s: dropped %v, shown %v", test.name, us.Status().Dropped, us.shown())
			}
		}
		for _, p := range []cluster.Pair{
			{A: a.member.NodeID(), B: b.member.NodeID(), Addresses: 1},
			{A: us.member.NodeID(), B: b.member.NodeID(), Addresses: 1},
			{A: us.member.NodeID(), B: us.member.NodeID(), Addresses: 1},
			{A: us.member.NodeID(), B: "x/y", Addresses: -1},
		} {
			us.Pair(p)
		}
		synctest.Wait()
		if got := us.shown(); len(got) > 0 || us.Status().Dropped[dropPair] != 3+4 {
			t.Errorf("shown %v, dropped %v", got, us.Status().Dropped)
		}
	})
}

func TestPairBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		us, a := f.start("node-1", testBoot, 1), f.start("node-0", testBoot, 1)
		for i := range maxPairs + 100 {
			b := cluster.Member{Name: fmt.Sprintf("node-x%d", i), Boot: testBoot, State: cluster.Alive}
			us.handler.Joined(members.Member{ID: wire.MemberIDOf(b.Name, b.Boot, b.Epoch), Member: b})
			us.handler.Packet(wire.Encode(a.id, wire.Pair{A: a.member.NodeID(), B: b.NodeID(), Origin: a.id, Seq: 1, Addresses: 1}))
			us.Pair(us.pairOf(b.Name, 1))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if got := len(us.Pairs()); got != 2*maxPairs {
			t.Errorf("%d pairs, want %d", got, 2*maxPairs)
		}
		dropped := us.Status().Dropped
		if dropped[dropPairs] != 200 || dropped[dropRelay] != maxPairs-relayBurst {
			t.Errorf("dropped %v", dropped)
		}
		if sent := len(us.broadcasts); sent != pairBurst+relayBurst {
			t.Errorf("%d broadcasts at once", sent)
		}
	})
}
