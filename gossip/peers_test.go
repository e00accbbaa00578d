package gossip

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
)

// Each node has so many packets and so many messages at once, and so many per second, whatever others send.
func TestPeersLimits(t *testing.T) {
	p := newParts(t)
	b, c := p.join("b", 1, cluster.Agent), p.join("c", 1, cluster.Agent)
	for name, limit := range map[string]struct {
		send        func(n *roster.Node, now time.Time) bool
		burst, rate int
	}{
		"packets": {func(n *roster.Node, now time.Time) bool { return p.peers.of(n).packets.AllowN(now, 1) }, packetBurst, packetRate},
		"messages": {func(n *roster.Node, now time.Time) bool {
			return p.peers.deliverOf(n, cluster.Stopped{Node: n.ID}, now) && p.news() == cluster.Stopped{Node: n.ID}
		}, messageBurst, messageRate},
	} {
		for _, step := range []struct {
			from  *roster.Node
			after time.Duration
			most  int
		}{{b, 0, limit.burst}, {c, 0, limit.burst}, {b, time.Second, limit.rate}, {b, time.Hour, limit.burst}} {
			accepted := 0
			for range step.most + 10 {
				if limit.send(step.from, noon.Add(step.after)) {
					accepted++
				}
			}
			if accepted != step.most {
				t.Errorf("%d %s of node %s after %v are accepted, want %d", accepted, name, step.from.Name, step.after, step.most)
			}
		}
	}
	p.drops("ten too many each time", dropMessages, 40)
}

// The agent is notified of a node that was silent once it is there again, at most every five seconds, and later if it is busy now.
func TestPeersReturned(t *testing.T) {
	p := newParts(t)
	b := p.join("b", 1, cluster.Agent)
	if p.peers.returned(b, noon); p.news() != nil || len(p.peers.all) != 0 {
		t.Error("notified of a node of which nothing is known, or remembers it")
	}
	for _, step := range []struct {
		name               string
		after              time.Duration
		silent, busy, want bool
	}{
		{"it replied", 0, false, false, false},
		{"it was silent", 0, true, false, true},
		{"it sends more", returnedEvery, false, false, false},
		{"silent again so soon", returnedEvery - 1, true, false, false},
		{"the agent is busy", returnedEvery, false, true, false},
		{"and is not any more", returnedEvery, false, false, true},
	} {
		if p.peers.of(b).silent = p.peers.of(b).silent || step.silent; step.busy {
			p.busy()
		}
		p.peers.returned(b, noon.Add(step.after))
		if m := p.news(); (m == cluster.Returned{Node: b.ID}) != step.want || !step.want && !step.busy && m != nil {
			t.Errorf("%s: the agent got %+v, want that it is notified: %t", step.name, m, step.want)
		}
	}
	p.drops("it was busy once", dropAgent, 1)
}
