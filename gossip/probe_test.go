package gossip

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// probeOf is a probe of a holder of a node.
func (n *fakeNode) probeOf(i int) detector.Probe {
	return detector.Probe{
		Key: testKey(i), Holder: detector.HolderID{Node: n.member.NodeID(), Netns: uint64(i)}, Purpose: detector.Verify, Round: uint32(i),
	}
}

func (n *fakeNode) replies() []cluster.ProbeReply {
	list, _ := messages[cluster.ProbeReply](n)
	return list
}

// reply returns the first reply that comes.
func (n *fakeNode) reply(t *testing.T, within time.Duration) cluster.ProbeReply {
	t.Helper()
	eventually(t, within, "a reply", func() bool { return len(n.replies()) > 0 })
	return n.replies()[0]
}

// waiting counts the probe requests that wait for a reply.
func (n *fakeNode) waiting() (count int) {
	n.state.Lock()
	defer n.state.Unlock()
	for m := range n.roster.All() {
		for seq := range uint64(10000) {
			if _, ok := n.post.Waiting(m, seq).(*request); ok {
				count++
			}
		}
	}
	return count
}

// What the agent of the one says arrives at the other, on its own clock.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		outcome detector.Outcome
		change  func(*cluster.ProbeReply)
		check   func(sent time.Time, r cluster.ProbeReply) bool
	}{
		{
			detector.Answered,
			func(r *cluster.ProbeReply) { r.At = time.Now().Add(-5 * time.Millisecond) },
			func(sent time.Time, r cluster.ProbeReply) bool {
				return r.At.After(sent) && time.Since(r.At) > 5*time.Millisecond
			},
		},
		{
			detector.Answered, // a clock that is slow, or a liar
			func(r *cluster.ProbeReply) { r.At = time.Now().Add(-time.Hour) },
			func(sent time.Time, r cluster.ProbeReply) bool { return r.At.Equal(sent) },
		},
		{
			detector.Answered,
			func(r *cluster.ProbeReply) { r.At = time.Now().Add(time.Hour) },
			func(_ time.Time, r cluster.ProbeReply) bool { return !r.At.After(time.Now()) },
		},
		{detector.Unanswered, nil, nil},
		{detector.Forwards, nil, nil},
		{detector.Gone, nil, nil},
		{
			detector.Refused,
			func(r *cluster.ProbeReply) { r.Reason, r.RetryAt = "probed by its pod", time.Now().Add(10*time.Second) },
			func(sent time.Time, r cluster.ProbeReply) bool {
				return r.Reason == "probed by its pod" && r.RetryAt.Sub(sent).Round(time.Second) == 10*time.Second
			},
		},
		{
			detector.Refused,
			func(r *cluster.ProbeReply) { r.Reason = "probes are off" },
			func(_ time.Time, r cluster.ProbeReply) bool { return r.RetryAt.IsZero() },
		},
	} {
		t.Run(fmt.Sprint(c.outcome), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newFakeNet(t).startMany(2)
				a, b := nodes[0], nodes[1]
				held := b.binding(1)
				held.Holder.InterfaceName, held.Holder.NetnsName = "veth1", "cni-1"
				held.Holder.Pod = detector.Pod{Namespace: "prod", Name: "db-0", UID: "42"}
				b.answers(func(q cluster.ProbeRequest) cluster.ProbeReply {
					if q.Holder != b.probeOf(1).Holder || q.Key != testKey(1) || q.From != a.member.NodeID() {
						t.Errorf("request %+v", q)
					}
					r := cluster.ProbeReply{Outcome: c.outcome, Binding: held}
					if c.change != nil {
						c.change(&r)
					}
					return r
				})
				sent := time.Now()
				a.RequestProbe(b.probeOf(1), nil)
				r := a.reply(t, 100*time.Millisecond)
				if r.Outcome != c.outcome || r.Probe != b.probeOf(1) || c.check != nil && !c.check(sent, r) {
					t.Errorf("reply %+v, sent at %v", r, sent)
				}
				want := held.Holder
				if c.outcome == detector.Gone {
					want = detector.Holder{}
				}
				if r.Binding.Holder != want || a.waiting() != 0 {
					t.Errorf("holder %+v, want %+v; %d wait", r.Binding.Holder, want, a.waiting())
				}
			})
		})
	}
}

// A holder that is gone when it has answered is gone.
func TestGoneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newFakeNet(t).startMany(2)
		for outcome, want := range map[detector.Outcome]detector.Outcome{detector.Answered: detector.Gone, detector.Unanswered: detector.Unanswered} {
			nodes[1].answers(func(cluster.ProbeRequest) cluster.ProbeReply { return cluster.ProbeReply{Outcome: outcome} })
			nodes[0].forgetMessages()
			nodes[0].RequestProbe(nodes[1].probeOf(1), nil)
			if r := nodes[0].reply(t, time.Second); r.Outcome != want || r.Binding.Evidence != 0 {
				t.Errorf("%+v, want outcome %d", r, want)
			}
		}
	})
}

// Under heavy loss each request has one reply within 2.5 s, and reaches the other agent once at most.
func TestProbeUnderLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		a, b := nodes[0], nodes[1]
		b.answers(func(cluster.ProbeRequest) cluster.ProbeReply {
			time.Sleep(100 * time.Millisecond) // as long as a pod may take
			return cluster.ProbeReply{Outcome: detector.Unanswered}
		})
		f.set(func() { f.loss = 0.3 })
		const n = 200
		for i := range n {
			a.RequestProbe(b.probeOf(i+1), []cluster.Binding{a.binding(1)})
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		outcomes := make(map[detector.Outcome]int)
		for _, m := range a.replies() {
			outcomes[m.Outcome]++
		}
		if outcomes[detector.Unanswered]+outcomes[detector.Unreachable] != n || len(outcomes) != 2 || outcomes[detector.Unanswered] < n*9/10 {
			t.Errorf("replies to %d requests: %v", n, outcomes)
		}
		if q, _ := messages[cluster.ProbeRequest](b); len(q) > n {
			t.Errorf("%d requests came %d times", n, len(q))
		}
		if a.waiting() != 0 {
			t.Errorf("%d wait", a.waiting())
		}
	})
}

// Nobody is there: the reply says so, at once if that is known, in time if not.
func TestUnreachable(t *testing.T) {
	const giveUp = 2500 * time.Millisecond
	for _, c := range []struct {
		name    string
		who     func(a, b *fakeNode) *fakeNode
		prepare func(*fakeNet, *fakeNode)
		after   time.Duration
	}{
		{"silent", nil, func(f *fakeNet, _ *fakeNode) { f.cut = func(_, to string) bool { return to == "node-1" } }, giveUp},
		{"agent hangs", nil, func(*fakeNet, *fakeNode) {}, giveUp},
		{"dead", nil, func(_ *fakeNet, b *fakeNode) { b.kill() }, 0},
		{"left", nil, func(_ *fakeNet, b *fakeNode) { b.leave() }, 0},
		{"this node", func(a, _ *fakeNode) *fakeNode { return a }, func(*fakeNet, *fakeNode) {}, 0},
		{"unknown", func(*fakeNode, *fakeNode) *fakeNode { return &fakeNode{} }, func(*fakeNet, *fakeNode) {}, 0},
		{"dies meanwhile", nil, func(_ *fakeNet, b *fakeNode) { time.AfterFunc(time.Second, b.kill) }, time.Second},
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
				p := who.probeOf(1)
				nodes[0].RequestProbe(p, nil)
				if took := eventually(t, 3*time.Second, "a reply", func() bool { return len(nodes[0].replies()) > 0 }); took.Round(10*time.Millisecond) != c.after {
					t.Errorf("after %v, want %v", took, c.after)
				}
				time.Sleep(5 * time.Second)
				if m := nodes[0].replies(); len(m) != 1 || m[0].Outcome != detector.Unreachable || m[0].Probe != p || nodes[0].waiting() != 0 {
					t.Errorf("replies %+v", m)
				}
			})
		})
	}
}

// A request to a node whose agent is upgraded meanwhile goes to the next one.
func TestProbeOverUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		time.Sleep(time.Second)
		f.set(func() { nodes[1].there = false }) // it hangs
		nodes[0].RequestProbe(nodes[1].probeOf(1), nil)
		time.Sleep(500 * time.Millisecond)
		b := f.start("node-1", testBoot, 2)
		b.answers(func(cluster.ProbeRequest) cluster.ProbeReply {
			return cluster.ProbeReply{Outcome: detector.Answered, At: time.Now(), Binding: b.binding(1)}
		})
		if m := nodes[0].reply(t, time.Second); m.Outcome != detector.Answered {
			t.Errorf("reply %+v", m)
		}
	})
}

// Only a holder's node speaks for it, and nothing but a reply ends a request.
func TestForgedReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newFakeNet(t).startMany(3)
		a, b, c := nodes[0], nodes[1], nodes[2]
		time.Sleep(time.Second)
		p := b.probeOf(1)
		a.RequestProbe(p, nil)
		time.Sleep(100 * time.Millisecond)
		asked, _ := messages[cluster.ProbeRequest](b)
		reply := wire.ProbeReply{ID: asked[0].ID, Key: p.Key, Outcome: detector.Gone, Binding: b.binding(1)}
		other, key := reply, reply
		other.Binding = b.binding(2)
		key.Key = testKey(2)
		a.from(c.member.ID, reply)
		a.from(b.member.ID, other)
		a.from(b.member.ID, key)
		a.from(b.member.ID, wire.Ack{Seq: reply.ID})
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if m := a.replies(); len(m) != 0 || a.dropped(dropUnasked) != 3 || a.waiting() != 1 {
			t.Errorf("replies %+v, dropped %v, %d wait", m, a.Status().Dropped, a.waiting())
		}
		// The same from the right one is accepted, once.
		a.from(b.member.ID, reply)
		a.from(b.member.ID, reply)
		time.Sleep(100 * time.Millisecond)
		if m := a.replies(); len(m) != 1 || m[0].Outcome != detector.Gone || a.dropped(dropUnasked) != 4 {
			t.Errorf("replies %+v", m)
		}
	})
}

// Requests of other nodes are remembered, and there is an end to how many.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		a := nodes[0]
		time.Sleep(time.Second)
		request := func(id uint64) wire.ProbeRequest {
			return wire.ProbeRequest{ID: id, Key: testKey(1), Holder: a.probeOf(1).Holder}
		}
		for i := range uint64(3500) {
			for _, n := range nodes[1:5] { // 14,000
				a.from(n.member.ID, request(i+1))
			}
			synctest.Wait()
		}
		a.from(nodes[1].member.ID, request(3500))
		synctest.Wait()
		if q, _ := messages[cluster.ProbeRequest](a); len(q) != 14000 {
			t.Errorf("%d requests; one that came again is another one", len(q))
		}
		a.from(nodes[1].member.ID, request(1))
		synctest.Wait()
		if q, _ := messages[cluster.ProbeRequest](a); len(q) != 14001 {
			t.Errorf("%d requests; the first of them is still remembered", len(q))
		}
		a.forgetMessages()
		a.from(nodes[5].member.ID, request(1))
		synctest.Wait()
		if q, _ := messages[cluster.ProbeRequest](a); len(q) != 1 {
			t.Errorf("%d requests of another node", len(q))
		}
		// Replies to nobody are counted.
		before := a.dropped(dropReply)
		a.ReplyProbe("x/y", 1, cluster.ProbeReply{Outcome: detector.Gone})
		a.ReplyProbe(nodes[5].member.NodeID(), 2, cluster.ProbeReply{Outcome: detector.Gone})
		a.ReplyProbe(nodes[5].member.NodeID(), 1, cluster.ProbeReply{Outcome: detector.Unreachable})
		a.ReplyProbe(nodes[5].member.NodeID(), 1, cluster.ProbeReply{Outcome: detector.Gone})
		a.ReplyProbe(nodes[5].member.NodeID(), 1, cluster.ProbeReply{Outcome: detector.Gone})
		synctest.Wait()
		if n := a.dropped(dropReply) - before; n != 4 {
			t.Errorf("%d dropped", n)
		}
	})
}

// What another agent of this node was replied is nothing to its successor.
func TestReplyToFormerAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a, b := f.start("a", testBoot, 1), f.start("b", testBoot, 1)
		time.Sleep(time.Second)
		a.RequestProbe(b.probeOf(1), nil)
		time.Sleep(500 * time.Millisecond)
		a.leave()
		again := f.start("a", testBoot, 2)
		again.RequestProbe(b.probeOf(1), nil)
		time.Sleep(100 * time.Millisecond)
		requests, _ := messages[cluster.ProbeRequest](b)
		if len(requests) != 2 || requests[0].ID != requests[1].ID {
			t.Fatalf("requests %+v: the test needs the same number twice", requests)
		}
		// The reply to the second is not that to the first.
		b.ReplyProbe(requests[0].From, requests[0].ID, cluster.ProbeReply{Outcome: detector.Unanswered, Binding: b.binding(1)})
		if m := again.reply(t, time.Second); m.Outcome != detector.Unanswered {
			t.Errorf("%+v", m)
		}
	})
}

// A node that was booted anew has none of the holders that it had, and nobody waits for them.
func TestProbeBootedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		a, b := f.start("a", testBoot, 1), f.start("b", testBoot, 1)
		time.Sleep(time.Second)
		of := b.probeOf(1)
		forgotten, unknown := of, of
		forgotten.Holder.Node = cluster.NodeID("b", "earlier still")
		unknown.Holder.Node = cluster.NodeID("c", testBoot)
		outcome := func(p detector.Probe) detector.Outcome {
			a.forgetMessages()
			a.RequestProbe(p, nil)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			m := a.replies()
			if len(m) != 1 || m[0].Probe != p {
				t.Fatalf("replies %+v", m)
			}
			return m[0].Outcome
		}
		b.kill()
		if got := outcome(of); got != detector.Unreachable {
			t.Errorf("while it is away: outcome %d", got)
		}
		f.start("b", "another", 1)
		time.Sleep(time.Second)
		for _, p := range []detector.Probe{of, forgotten} {
			if got := outcome(p); got != detector.Gone {
				t.Errorf("%s after another boot: outcome %d", p.Holder.Node, got)
			}
		}
		if got := outcome(unknown); got != detector.Unreachable {
			t.Errorf("an unknown node: outcome %d", got)
		}
		// Two of one name that are both there are two nodes.
		other := b.member
		other.Address = "elsewhere:7951"
		f.joined(other)
		if got := outcome(of); got != detector.Unreachable {
			t.Errorf("with a namesake: outcome %d", got)
		}
	})
}

// The agent is notified of a node that left a request without a reply once it is there again, also by its next agent, and not with every packet.
func TestReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(2)
		a, b := nodes[0], nodes[1]
		time.Sleep(time.Second)
		f.set(func() { f.cut = func(string, string) bool { return true } })
		a.RequestProbe(b.probeOf(1), nil)
		time.Sleep(3 * time.Second)
		if list, _ := messages[cluster.Returned](a); len(list) != 0 {
			t.Fatalf("notified during the cut: %+v", list)
		}
		f.set(func() { f.cut = nil })
		for i := range 10 {
			b.hold(testKey(i), 1)
			time.Sleep(100 * time.Millisecond)
		}
		if list, _ := messages[cluster.Returned](a); len(list) != 1 || list[0].Node != b.member.NodeID() {
			t.Errorf("notified of %+v, want the other node once", list)
		}

		b.leave()
		a.RequestProbe(b.probeOf(1), nil) // is not sent
		time.Sleep(time.Minute)
		f.start("node-1", testBoot, 2).hold(testKey(1), 1)
		time.Sleep(time.Second)
		if list, _ := messages[cluster.Returned](a); len(list) != 2 {
			t.Errorf("notified %d times after the other node's next agent began, want twice", len(list))
		}
	})
}

// While the loop is busy, calls wait and more of them fail at once; with the race detector nothing else is touched.
func TestRequestsOverflow(t *testing.T) {
	f := newFakeNet(t)
	a, b := f.start("a", testBoot, 1), f.start("b", testBoot, 1)
	const callers = 4
	a.state.Lock()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range maxCalls/callers + 500 {
				a.RequestProbe(b.probeOf(1), nil)
			}
		})
	}
	wg.Wait()
	a.state.Unlock()
	const total = maxCalls + callers*500
	// Replies that the agent was too busy for are counted.
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // each look copies all replies
		s := a.Status()
		replies := len(a.replies()) + int(s.Dropped[dropAgent])
		if replies == total && s.Dropped[dropCalls] > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d replies to %d requests; dropped %v", replies, total, s.Dropped)
		}
	}
	if n := a.waiting(); n != 0 {
		t.Errorf("%d wait", n)
	}
}
