package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Two nodes lease one address: each is told of the other's holder, and asks.
func TestTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(5)
		a, b := nodes[0], nodes[1]
		time.Sleep(10 * time.Second)
		claims := map[*fakeNode]cluster.Binding{a: a.hold(testKey(1), 1), b: b.hold(testKey(1), 2)}
		for _, pair := range [][2]*fakeNode{{a, b}, {b, a}} {
			n, other := pair[0], pair[1]
			eventually(t, time.Second, "a rival", func() bool { r, _ := messages[cluster.ConflictNotice](n); return len(r) > 0 })
			rivals, _ := messages[cluster.ConflictNotice](n)
			want := cluster.ConflictNotice{Key: testKey(1), Total: 2, Bindings: []cluster.Binding{claims[other]}}
			roughly := cmpopts.EquateApproxTime(100 * time.Millisecond)
			compare := cmp.Comparer(func(a, b detector.Key) bool { return a == b })
			if diff := cmp.Diff(want, rivals[0], roughly, compare); diff != "" {
				t.Errorf("rival of %s (-want +got):\n%s", n.member.Name, diff)
			}
		}
		for _, n := range nodes[2:] {
			if r, _ := messages[cluster.ConflictNotice](n); len(r) > 0 {
				t.Errorf("%s was told %v", n.member.Name, r)
			}
		}
		b.answer = func(_ cluster.ProbeRequest) cluster.ProbeReply {
			return cluster.ProbeReply{Outcome: cluster.Answered, At: time.Now(), Binding: claims[b]}
		}
		s := detector.Probe{Key: testKey(1), Holder: claims[b].Holder.ID, Round: 7}
		a.RequestProbe(s, []cluster.Binding{claims[a]})
		eventually(t, time.Second, "a testimony", func() bool { m, _ := messages[cluster.ProbeReply](a); return len(m) > 0 })
		if m, _ := messages[cluster.ProbeReply](a); m[0].Probe != s || m[0].Outcome != cluster.Answered {
			t.Errorf("testimony %+v", m[0])
		}
		if q, _ := messages[cluster.ProbeRequest](b); len(q) != 1 || q[0].From != a.member.NodeID() || len(q[0].Bindings) != 1 {
			t.Errorf("questions %+v", q)
		}
		for _, n := range nodes {
			if s := n.Status(); s.Unacked > 0 || len(s.Problems) > 0 {
				t.Errorf("status of %s: %+v", n.member.Name, s)
			}
		}
	})
}
