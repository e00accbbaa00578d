package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// Half of the agents send as a next version would: one more field in each message, and one more kind of message. For 20
// minutes, which is four times the life of a lease, all holders are notified of each other, and no lease ends.
func TestTwoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 8
		f := newFakeNet(t)
		f.plain = true
		nodes, later := f.startMany(size), make(map[string]bool)
		for _, n := range nodes[size/2:] {
			later[n.member.Name] = true
		}
		changed := 0
		f.set(func() {
			f.loss = 0.01
			f.change = func(from string, payload []byte) []byte {
				if !later[from] {
					return payload
				}
				changed++
				return nextVersion(t, payload)
			}
		})
		time.Sleep(10 * time.Second)
		type pair struct{ a, b int }
		var pairs []pair
		for a := range size {
			for b := range size {
				if a != b {
					nodes[a].hold(testKey(len(pairs)), 1)
					nodes[b].hold(testKey(len(pairs)), 2)
					pairs = append(pairs, pair{a, b})
				}
			}
		}
		allKnow := func() bool {
			for i, p := range pairs {
				if !nodes[p.a].knows(testKey(i), nodes[p.b].member.Name)() || !nodes[p.b].knows(testKey(i), nodes[p.a].member.Name)() {
					return false
				}
			}
			return true
		}
		t.Logf("%d duplicates: all notified after %v", len(pairs), eventually(t, 10*time.Second, "notices", allKnow))
		time.Sleep(10 * time.Second)
		for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); {
			for _, n := range nodes {
				n.forgetMessages()
			}
			// A lease is refreshed within 150 s, and acknowledged with the other holder.
			for range 180 {
				time.Sleep(time.Second)
				kept := 0
				for _, n := range nodes {
					kept += n.Status().Kept
				}
				if want := 2 * 3 * len(pairs); kept != want {
					t.Fatalf("%d leases are kept, want %d", kept, want)
				}
			}
			if !allKnow() {
				t.Error("a holder was not notified again")
			}
			for _, n := range nodes {
				if gone, _ := messages[cluster.ProbeReply](n); len(gone) > 0 {
					t.Errorf("%s received the end of %v", n.member.Name, gone)
				}
			}
		}
		f.set(func() { f.change = nil })
		time.Sleep(time.Second) // what is on the way arrives
		counted := 0
		for _, n := range nodes {
			for reason, count := range n.Status().Dropped {
				if counted += int(count); reason != dropField {
					t.Errorf("%s dropped %d: %s", n.member.Name, count, reason)
				}
			}
		}
		if counted != changed {
			t.Errorf("unknown fields in %d packets are counted, want %d", counted, changed)
		}
		t.Logf("unknown fields in %d packets", counted)
	})
}

// Half of the agents do not read packed packets. All holders are notified of each other, and what goes to the others is packed.
func TestPacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, shared = 4, 500
		f := newFakeNet(t)
		nodes := f.startMany(size)
		time.Sleep(10 * time.Second)
		for i := range shared {
			nodes[i%size].hold(testKey(i), 1)
			nodes[(i+1)%size].hold(testKey(i), 2)
		}
		eventually(t, 10*time.Second, "notices", func() bool {
			for i := range shared {
				if !nodes[i%size].knows(testKey(i), nodes[(i+1)%size].member.Name)() {
					return false
				}
			}
			return true
		})
		packets, packed, bytes := 0, 0, 0
		for _, n := range nodes {
			packets, packed, bytes = packets+n.packets, packed+n.packed, bytes+n.bytes
		}
		if packed < packets/8 {
			t.Errorf("%d of %d packets are packed", packed, packets)
		}
		t.Logf("%d of %d packets are packed; %d bytes", packed, packets, bytes)
	})
}

// nextVersion adds to a packet what this version does not know.
func nextVersion(t *testing.T, payload []byte) []byte {
	var p map[int][]map[int]any
	if err := cbor.Unmarshal(payload, &p); err != nil {
		t.Error(err)
	}
	news := map[int]any{1: "new", 2: []int{3}}
	for _, list := range p {
		for _, m := range list {
			m[64] = news
		}
	}
	p[64] = []map[int]any{news}
	return wire.Marshal(p)
}
