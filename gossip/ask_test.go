package gossip

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// solicitation asks for a holder of a node.
func (n *fakeNode) solicitation(i int) detector.Probe {
	return detector.Probe{
		Key: testKey(i), Holder: detector.HolderID{Node: n.member.NodeID(), Netns: uint64(i)}, Purpose: detector.Verify, Round: uint32(i),
	}
}

// lastAsk is the number of the last question.
func (n *fakeNode) lastAsk() uint64 {
	n.state.Lock()
	defer n.state.Unlock()
	return n.Gossip.asks.last
}

// What the agent of the one says arrives at the other, on its own clock.
func TestTestimonies(t *testing.T) {
	for _, c := range []struct {
		outcome cluster.Outcome
		testify func(*cluster.ProbeReply)
		check   func(asked time.Time, t cluster.ProbeReply) bool
	}{
		{
			cluster.Answered,
			func(t *cluster.ProbeReply) { t.At = time.Now().Add(-5 * time.Millisecond) },
			func(asked time.Time, t cluster.ProbeReply) bool {
				return t.At.After(asked) && time.Since(t.At) > 5*time.Millisecond
			},
		},
		{
			cluster.Answered, // a clock that is slow, or a liar
			func(t *cluster.ProbeReply) { t.At = time.Now().Add(-time.Hour) },
			func(asked time.Time, t cluster.ProbeReply) bool { return t.At.Equal(asked) },
		},
		{cluster.Unanswered, nil, nil},
		{cluster.Forwards, nil, nil},
		{cluster.Gone, nil, nil},
		{
			cluster.Refused,
			func(t *cluster.ProbeReply) { t.Reason, t.RetryAt = "probed by its pod", time.Now().Add(10*time.Second) },
			func(asked time.Time, t cluster.ProbeReply) bool {
				return t.Reason == "probed by its pod" && t.RetryAt.Sub(asked).Round(time.Second) == 10*time.Second
			},
		},
		{
			cluster.Refused,
			func(t *cluster.ProbeReply) { t.Reason = "solicitation is off" },
			func(_ time.Time, t cluster.ProbeReply) bool { return t.RetryAt.IsZero() },
		},
	} {
		t.Run(fmt.Sprint(c.outcome), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newFakeNet(t).startMany(2)
				a, b := nodes[0], nodes[1]
				claim := b.claim(1)
				claim.Holder.InterfaceName, claim.Holder.NetnsName = "veth1", "cni-1"
				claim.Holder.Pod = detector.Pod{Namespace: "prod", Name: "db-0", UID: "42"}
				b.answer = func(q cluster.ProbeRequest) cluster.ProbeReply {
					if q.Holder != b.solicitation(1).Holder || q.Key != testKey(1) || q.From != a.member.NodeID() {
						t.Errorf("question %+v", q)
					}
					answer := cluster.ProbeReply{Outcome: c.outcome, Binding: claim}
					if c.testify != nil {
						c.testify(&answer)
					}
					return answer
				}
				asked := time.Now()
				a.RequestProbe(b.solicitation(1), nil)
				eventually(t, 100*time.Millisecond, "a testimony", func() bool { m, _ := messages[cluster.ProbeReply](a); return len(m) > 0 })
				m, _ := messages[cluster.ProbeReply](a)
				if m[0].Outcome != c.outcome || m[0].Probe != b.solicitation(1) {
					t.Errorf("testimony %+v", m[0])
				}
				if c.check != nil && !c.check(asked, m[0]) {
					t.Errorf("testimony %+v, asked at %v", m[0], asked)
				}
				got := m[0].Binding.Holder
				if c.outcome == cluster.Gone {
					claim.Holder = detector.Holder{}
				}
				if got != claim.Holder {
					t.Errorf("holder %+v, want %+v", got, claim.Holder)
				}
			})
		})
	}
}

// Under heavy loss each question has one testimony within two seconds, and is put to the
// other agent once at most.
func TestAskUnderLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		a, b := nodes[0], nodes[1]
		b.answer = func(cluster.ProbeRequest) cluster.ProbeReply {
			time.Sleep(100 * time.Millisecond) // as long as a pod may take
			return cluster.ProbeReply{Outcome: cluster.Unanswered}
		}
		f.mu.Lock()
		f.loss = 0.3
		f.mu.Unlock()
		const n = 200
		for i := range n {
			a.RequestProbe(b.solicitation(i), []cluster.Binding{a.claim(1)})
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		all, _ := messages[cluster.ProbeReply](a)
		outcomes := make(map[cluster.Outcome]int)
		for _, m := range all {
			outcomes[m.Outcome]++
		}
		if len(all) != n || outcomes[cluster.Unanswered]+outcomes[cluster.Unreachable] != n || outcomes[cluster.Unanswered] < n*9/10 {
			t.Errorf("%d testimonies to %d questions: %v", len(all), n, outcomes)
		}
		if q, _ := messages[cluster.ProbeRequest](b); len(q) > n {
			t.Errorf("%d questions were put %d times", n, len(q))
		}
	})
}

// Nobody is there: the testimony says so, at once if that is known, in time if not.
func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		name         string
		who          func(a, b *fakeNode) *fakeNode
		prepare      func(*fakeNet, *fakeNode)
		after, until time.Duration
	}{
		{"silent", nil, func(f *fakeNet, _ *fakeNode) { f.cut = func(_, to string) bool { return to == "node-1" } }, askFor, askFor},
		{"agent hangs", nil, func(*fakeNet, *fakeNode) {}, askFor, askFor},
		{"dead", nil, func(_ *fakeNet, b *fakeNode) { b.kill() }, 0, 0},
		{"left", nil, func(_ *fakeNet, b *fakeNode) { b.leave() }, 0, 0},
		{"this node", func(a, _ *fakeNode) *fakeNode { return a }, func(*fakeNet, *fakeNode) {}, 0, 0},
		{"stranger", func(*fakeNode, *fakeNode) *fakeNode { return &fakeNode{} }, func(*fakeNet, *fakeNode) {}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeNet(t)
				nodes := f.startMany(2)
				time.Sleep(10 * time.Second)
				c.prepare(f, nodes[1])
				who := nodes[1]
				if c.who != nil {
					who = c.who(nodes[0], nodes[1])
				}
				s := who.solicitation(1)
				nodes[0].RequestProbe(s, nil)
				took := eventually(t, 2*time.Second, "a testimony", func() bool { m, _ := messages[cluster.ProbeReply](nodes[0]); return len(m) > 0 })
				if took < c.after || took > c.until {
					t.Errorf("after %v, want %v to %v", took, c.after, c.until)
				}
				time.Sleep(5 * time.Second)
				m, _ := messages[cluster.ProbeReply](nodes[0])
				if len(m) != 1 || m[0].Outcome != cluster.Unreachable || m[0].Probe != s {
					t.Errorf("testimonies %+v", m)
				}
			})
		})
	}
}

// A question that is put while its node's agent is upgraded goes to the next one.
func TestAskOverUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		time.Sleep(time.Second)
		f.mu.Lock()
		nodes[1].hears = false // stuck
		f.mu.Unlock()
		nodes[0].RequestProbe(nodes[1].solicitation(1), nil)
		time.Sleep(500 * time.Millisecond)
		b := f.start("node-1", testBoot, 2)
		b.answer = func(cluster.ProbeRequest) cluster.ProbeReply {
			return cluster.ProbeReply{Outcome: cluster.Answered, At: time.Now(), Binding: b.claim(1)}
		}
		eventually(t, time.Second, "a testimony", func() bool { m, _ := messages[cluster.ProbeReply](nodes[0]); return len(m) > 0 })
		if m, _ := messages[cluster.ProbeReply](nodes[0]); m[0].Outcome != cluster.Answered {
			t.Errorf("testimony %+v", m[0])
		}
	})
}

// The end of a holder is told to the nodes of its rivals directly.
func TestWithdrawTellsRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(4)
		a, b, c := nodes[0], nodes[1], nodes[2]
		claim := a.hold(testKey(1), 7)
		b.hold(testKey(1), 8)
		time.Sleep(10 * time.Second)
		a.Withdraw(testKey(1), claim.Holder.ID, []string{b.member.NodeID(), c.member.NodeID(), a.member.NodeID(), "x/y"})
		time.Sleep(time.Second)
		m, _ := messages[cluster.ProbeReply](b)
		if len(m) != 2 { // twice, because nobody acknowledges it
			t.Fatalf("testimonies %+v", m)
		}
		for _, m := range m {
			if m.Outcome != cluster.Gone || m.Probe != (detector.Probe{Key: testKey(1), Holder: claim.Holder.ID}) {
				t.Errorf("testimony %+v", m)
			}
		}
		if m, _ := messages[cluster.ProbeReply](c); len(m) != 0 {
			t.Errorf("one without a holder was told %+v", m)
		}
		// The address is back before it could be told again.
		a.hold(testKey(1), 7)
		time.Sleep(10 * time.Second)
		b.forgetMessages()
		a.Withdraw(testKey(1), claim.Holder.ID, []string{b.member.NodeID()})
		time.Sleep(50 * time.Millisecond)
		a.hold(testKey(1), 7)
		time.Sleep(time.Second)
		if m, _ := messages[cluster.ProbeReply](b); len(m) != 1 {
			t.Errorf("told %d times that it is gone", len(m))
		}
	})
}

// Only a holder's node speaks for it.
func TestForgedTestimony(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newFakeNet(t).startMany(3)
		a, b, c := nodes[0], nodes[1], nodes[2]
		time.Sleep(time.Second)
		s := b.solicitation(1)
		a.RequestProbe(s, nil)
		time.Sleep(100 * time.Millisecond)
		forged := wire.Encode(c.id, wire.Verified{
			ID: a.lastAsk(), Key: s.Key, Outcome: cluster.Gone, Claim: wire.Claim{Holder: wire.Holder{Netns: s.Holder.Netns}},
		})
		a.handler.Packet(forged)
		time.Sleep(100 * time.Millisecond)
		if m, _ := messages[cluster.ProbeReply](a); len(m) != 0 || a.Status().Dropped[dropUnasked] != 1 {
			t.Errorf("testimonies %+v, dropped %v", m, a.Status().Dropped)
		}
		// The same from the right one is taken.
		genuine := wire.Encode(b.id, wire.Verified{
			ID: a.lastAsk(), Key: s.Key, Outcome: cluster.Gone, Claim: wire.Claim{Holder: wire.Holder{Netns: s.Holder.Netns}},
		})
		a.handler.Packet(genuine)
		time.Sleep(100 * time.Millisecond)
		if m, _ := messages[cluster.ProbeReply](a); len(m) != 1 || m[0].Outcome != cluster.Gone {
			t.Errorf("testimonies %+v", m)
		}
	})
}

// Whoever asks without end is refused, and others are not.
func TestAsksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newFakeNet(t).startMany(3)
		a, b, c := nodes[0], nodes[1], nodes[2]
		time.Sleep(time.Second)
		for i := range 5000 {
			a.handler.Packet(wire.Encode(b.id, wire.Ask{
				ID: uint64(i + 1), Key: testKey(i), Holder: wire.Holder{Member: a.id, Netns: 1},
			}))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if q, _ := messages[cluster.ProbeRequest](a); len(q) > askBurst+10 {
			t.Errorf("%d questions of one node", len(q))
		}
		before, _ := messages[cluster.ProbeRequest](a)
		c.RequestProbe(a.solicitation(1), nil)
		time.Sleep(100 * time.Millisecond)
		if q, _ := messages[cluster.ProbeRequest](a); len(q) != len(before)+1 {
			t.Errorf("%d questions of another node", len(q)-len(before))
		}
		time.Sleep(10 * time.Second)
		a.state.Lock()
		defer a.state.Unlock()
		if n := len(a.questions.byID) + len(a.questions.asked) + len(a.questions.order) + len(a.questions.of); n != 0 {
			t.Errorf("%d things are remembered", n)
		}
	})
}

// What another agent of this node was answered is nothing to its successor, whoever sends it
// again: packets are encrypted, but an old one is as good as a new one.
func TestAnswerToFormerAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a, b := f.start("a", testBoot, 1), f.start("b", testBoot, 1)
		var answers [][]byte
		b.answer = func(cluster.ProbeRequest) cluster.ProbeReply {
			return cluster.ProbeReply{Outcome: cluster.Answered, At: time.Now(), Binding: b.claim(2)}
		}
		time.Sleep(time.Second)
		s := detector.Probe{Key: testKey(1), Holder: b.claim(2).Holder.ID}
		for range 20 {
			a.RequestProbe(s, nil)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got, _ := messages[cluster.ProbeReply](a); len(got) != 20 || got[0].Outcome != cluster.Answered {
			t.Fatalf("%d answers: %+v", len(got), got)
		}
		for i := range uint64(20) {
			answers = append(answers, wire.Encode(b.id, wire.Verified{
				ID: a.lastAsk() - i, Key: s.Key, Outcome: cluster.Answered, Claim: b.wireClaim(b.claim(2), time.Now()),
			}))
		}
		a.leave()
		again := f.start("a", testBoot, 2)
		b.answer = nil
		time.Sleep(time.Second)
		for range 20 {
			again.RequestProbe(s, nil)
		}
		time.Sleep(50 * time.Millisecond)
		for _, packet := range answers {
			again.handler.Packet(packet)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got, _ := messages[cluster.ProbeReply](again)
		if len(got) != 20 {
			t.Errorf("%d answers", len(got))
		}
		for _, testimony := range got {
			if testimony.Outcome != cluster.Unreachable {
				t.Errorf("it is answered: %+v", testimony)
			}
		}
	})
}

// A node that was booted anew has none of the holders that it had, and nobody waits for them.
func TestAskBootedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a, b := f.start("a", testBoot, 1), f.start("b", testBoot, 1)
		time.Sleep(time.Second)
		of := b.solicitation(1)
		forgotten := of
		forgotten.Holder.Node = cluster.NodeID("b", "earlier still")
		stranger := of
		stranger.Holder.Node = cluster.NodeID("c", testBoot)
		outcome := func(s detector.Probe) cluster.Outcome {
			a.forgetMessages()
			a.RequestProbe(s, nil)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			m, _ := messages[cluster.ProbeReply](a)
			if len(m) != 1 || m[0].Probe != s {
				t.Fatalf("testimonies %+v", m)
			}
			return m[0].Outcome
		}
		b.kill()
		if got := outcome(of); got != cluster.Unreachable {
			t.Errorf("while it is away: outcome %d", got)
		}
		b.answer = nil
		f.start("b", "another", 1)
		time.Sleep(time.Second)
		for _, s := range []detector.Probe{of, forgotten} {
			if got := outcome(s); got != cluster.Gone {
				t.Errorf("%s after another boot: outcome %d", s.Holder.Node, got)
			}
		}
		if got := outcome(stranger); got != cluster.Unreachable {
			t.Errorf("a stranger: outcome %d", got)
		}
		// Two of one name that are both there are two nodes.
		f.tell(b.member, cluster.Alive)
		if got := outcome(of); got != cluster.Unreachable {
			t.Errorf("with a namesake: outcome %d", got)
		}
	})
}

// A node that left a question unanswered is told of once it is heard again, and not with
// every packet.
func TestReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		a, b := nodes[0], nodes[1]
		set := func(cut bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.cut = nil
			if cut {
				f.cut = func(string, string) bool { return true }
			}
		}
		returned := func() int {
			list, _ := messages[cluster.Returned](a)
			return len(list)
		}
		time.Sleep(time.Second)
		set(true)
		a.RequestProbe(b.solicitation(1), nil)
		time.Sleep(3 * time.Second)
		if n := returned(); n != 0 {
			t.Fatalf("told %d times during the cut", n)
		}
		set(false)
		for i := range 10 {
			b.hold(testKey(i), 1)
			time.Sleep(100 * time.Millisecond)
		}
		if list, _ := messages[cluster.Returned](a); len(list) != 1 || list[0].Node != b.member.NodeID() {
			t.Errorf("told %+v, want the other node once", list)
		}
	})
}
