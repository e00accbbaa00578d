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
func await[M cluster.Message](t *testing.T, g *Gossip, answer cluster.Testimony) M {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case m := <-g.Messages():
			if q, ok := m.(cluster.Question); ok {
				g.Testify(q.ID, answer)
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
	claim := func(node string) cluster.Claim {
		return cluster.Claim{
			Holder:    detector.Holder{ID: detector.HolderID{Node: cluster.NodeID(node, testBoot), Netns: 1}, InterfaceName: "veth" + node},
			Evidence:  detector.Announced,
			FirstSeen: time.Now(), LastSeen: time.Now(),
		}
	}
	a.Lease(cluster.Lease{Key: testKey(1), Claim: claim("a")})
	b.Lease(cluster.Lease{Key: testKey(1), Claim: claim("b")})
	rival := await[cluster.Rival](t, a, cluster.Testimony{})
	if rival.Claims[0].Holder.ID != claim("b").Holder.ID {
		t.Errorf("rival %+v", rival)
	}
	await[cluster.Rival](t, b, cluster.Testimony{})

	s := detector.Solicitation{Key: testKey(1), Holder: claim("b").Holder.ID}
	a.Ask(s, []cluster.Claim{claim("a")})
	q := await[cluster.Question](t, b, cluster.Testimony{Outcome: cluster.Answered, At: time.Now(), Claim: claim("b")})
	if q.From != cluster.NodeID("a", testBoot) || q.Holder != s.Holder || len(q.Claims) != 1 {
		t.Errorf("question %+v", q)
	}
	testimony := await[cluster.Testimony](t, a, cluster.Testimony{})
	if testimony.Outcome != cluster.Answered || testimony.Solicitation != s || testimony.Claim.Holder.InterfaceName != "vethb" {
		t.Errorf("testimony %+v", testimony)
	}
	// Who came to know a last tells it of its lease within 5 s only.
	for deadline := time.Now().Add(20 * time.Second); a.Status().Received["lease"] == 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	b.Withdraw(testKey(1), s.Holder, []string{cluster.NodeID("a", testBoot)})
	for testimony.Outcome != cluster.Gone {
		testimony = await[cluster.Testimony](t, a, cluster.Testimony{})
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
	if s := a.Status(); s.Received["lease"] == 0 || s.Sent["ask"] == 0 {
		t.Errorf("status of a: %+v", s)
	}
}
