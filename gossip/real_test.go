package gossip

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
)

// startReal starts a core over memberlist on a loopback address.
func startReal(t *testing.T, name string, join ...string) *Gossip {
	t.Helper()
	g, err := New(Options{
		Log: slog.New(slog.DiscardHandler),
		Members: members.Options{
			Node: name, Boot: testBoot, Epoch: 1, Version: "test", Bind: "127.0.0.1", Join: join, Label: "test",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return g
}

// await returns the next message of a type, and answers questions meanwhile.
func await[M cluster.Message](t *testing.T, g *Gossip, answer cluster.ProbeReply) M {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case m := <-g.Messages():
			if q, ok := m.(cluster.ProbeRequest); ok {
				g.ReplyProbe(q.ID, answer)
			}
			if m, ok := m.(M); ok {
				return m
			}
		case <-deadline:
			t.Fatalf("no %T: status %+v", *new(M), g.Status())
		}
	}
}

// Over real membership and real packets, two nodes learn of each other's holders.
func TestOverMemberlist(t *testing.T) {
	a := startReal(t, "a")
	b := startReal(t, "b", a.Status().Address)
	c := startReal(t, "c", a.Status().Address)
	claim := func(node string) cluster.Binding {
		return cluster.Binding{
			Holder:    detector.Holder{ID: detector.HolderID{Node: cluster.NodeID(node, testBoot), Netns: 1}, InterfaceName: "veth" + node},
			Evidence:  detector.Announced,
			FirstSeen: time.Now(), LastSeen: time.Now(),
		}
	}
	a.Lease(cluster.Lease{Key: testKey(1), Binding: claim("a")})
	b.Lease(cluster.Lease{Key: testKey(1), Binding: claim("b")})
	rival := await[cluster.ConflictNotice](t, a, cluster.ProbeReply{})
	if rival.Bindings[0].Holder.ID != claim("b").Holder.ID {
		t.Errorf("rival %+v", rival)
	}
	await[cluster.ConflictNotice](t, b, cluster.ProbeReply{})

	s := detector.Probe{Key: testKey(1), Holder: claim("b").Holder.ID}
	a.RequestProbe(s, []cluster.Binding{claim("a")})
	q := await[cluster.ProbeRequest](t, b, cluster.ProbeReply{Outcome: cluster.Answered, At: time.Now(), Binding: claim("b")})
	if q.From != cluster.NodeID("a", testBoot) || q.Holder != s.Holder || len(q.Bindings) != 1 {
		t.Errorf("question %+v", q)
	}
	testimony := await[cluster.ProbeReply](t, a, cluster.ProbeReply{})
	if testimony.Outcome != cluster.Answered || testimony.Probe != s || testimony.Binding.Holder.InterfaceName != "vethb" {
		t.Errorf("testimony %+v", testimony)
	}
	// Who came to know a last tells it of its lease within 5 s only.
	for deadline := time.Now().Add(20 * time.Second); a.Status().Received["lease"] == 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	b.Withdraw(testKey(1), s.Holder, []string{cluster.NodeID("a", testBoot)})
	for testimony.Outcome != cluster.Gone {
		testimony = await[cluster.ProbeReply](t, a, cluster.ProbeReply{})
	}

	settled := func() bool { s := c.Status(); return s.Members[cluster.Alive] == 3 && s.Unacked == 0 }
	for deadline := time.Now().Add(20 * time.Second); !settled() && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	list := c.Members()
	if len(list) != 3 || list[2].Name != "c" || !list[2].Self || list[0].State != cluster.Alive {
		t.Errorf("members %+v", list)
	}
	if s := c.Status(); s.Members[cluster.Alive] != 3 || s.Unacked != 0 {
		t.Errorf("status of c: %+v", s)
	}
	if s := a.Status(); s.Received["lease"] == 0 || s.Sent["probe_request"] == 0 {
		t.Errorf("status of a: %+v", s)
	}
}
