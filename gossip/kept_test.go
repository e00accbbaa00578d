package gossip

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/keeper"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

// newHolders returns the holders of node "a", which has leases of so many keys, and of the one other node, "b", none.
func newHolders(t *testing.T, leases int) (*parts, *holders, *roster.Node) {
	p := newParts(t)
	b := p.join("b", 1, cluster.Agent)
	h := &holders{
		roster: p.roster, peers: p.peers, post: p.post, count: p.count, kept: keeper.New(p.roster),
		leases:  lease.New(p.roster, p.post.Queue, DefaultReplicas, func(time.Duration) time.Duration { return 0 }),
		unknown: recent.Map[string, unknownNode]{Half: maxUnknown},
	}
	for i := range leases {
		h.lease(cluster.Lease{Key: testKey(i), Binding: pod(p.roster.Self(), 1)}, noon)
	}
	p.due(noon)
	return p, h, b
}

// leasesTo counts the leases that are sent to a node at a time.
func (p *parts) leasesTo(n *roster.Node, now time.Time) (count int) {
	for _, d := range p.due(now) {
		if _, ok := d.Message.(*lease.Lease); ok && d.To == n {
			count++
		}
	}
	return count
}

// When a node is known, the leases of the addresses that it has are sent again, all if these are too many, and once.
func TestHoldersAsk(t *testing.T) {
	const leases = maxUnknownKeys + 9
	for count, want := range map[int]int{0: 0, 2: 2, maxUnknownKeys: maxUnknownKeys, maxUnknownKeys + 1: leases} {
		p, h, b := newHolders(t, leases)
		other := pod(b, 2)
		other.Holder.ID.Node = cluster.NodeID("c", testBoot)
		for i := range 2 * count { // each twice
			h.receiveOthers(b, wire.Notice{Key: testKey(i / 2), Others: []cluster.Binding{other}}, noon)
		}
		if h.ask(b, noon); p.leasesTo(b, noon) != 0 {
			t.Error("leases are sent again for another node")
		}
		c := p.join("c", 1, cluster.Agent)
		for _, want := range []int{want, 0} {
			if h.ask(c, noon); p.leasesTo(b, noon) != want || p.news() != nil {
				t.Errorf("of %d addresses that it has, not %d leases are sent again", count, want)
			}
		}
	}
}

// The acknowledgement of a lease counts when the agent got the others that it names; that of an ended one has none to hand over.
func TestHoldersReceiveAck(t *testing.T) {
	for _, test := range []struct {
		name             string
		gone, busy, left bool
		delivered        int
	}{{"live", false, false, false, 1}, {"a busy agent", false, true, true, 0}, {"ended", true, true, false, 0}} {
		p, h, b := newHolders(t, 1)
		l := &lease.Lease{ID: lease.ID{Key: testKey(0), Holder: pod(p.roster.Self(), 1).Holder.ID}, Gone: test.gone}
		if test.busy {
			p.busy()
		}
		h.receiveAck(b, l, wire.Ack{Others: []cluster.Binding{pod(b, 2)}}, noon)
		m, _ := p.news().(cluster.ConflictNotice)
		if left := p.leasesTo(b, noon.Add(time.Second)) > 0; len(m.Bindings) != test.delivered || left != test.left {
			t.Errorf("%s: the agent got %+v; the lease is still to be acknowledged: %t", test.name, m, !test.left)
		}
	}
}
