package scale

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// recorder records the notifications of one member.
type recorder struct {
	mu      sync.Mutex
	here    map[string]bool
	twice   []string // notified more than once
	packets int
}

func (e *recorder) Packet([]byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.packets++
}

func (e *recorder) Updated(members.Member) {}

func (e *recorder) Joined(m members.Member) { e.record(m, true) }

func (e *recorder) Left(m members.Member, _ bool) { e.record(m, false) }

func (e *recorder) record(m members.Member, here bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.here[m.Name] == here {
		e.twice = append(e.twice, m.Name)
	}
	e.here[m.Name] = here
}

// Every member is notified of every other one once, whenever it joined; of those that leave or are
// killed; and of both sides of a partition.
func TestSimulatedMembers(t *testing.T) {
	const size = 60
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{})
		defer network.Close()
		c := newSimulatedMembers(network, 1)
		defer c.close()
		ears := make([]*recorder, size)
		nodes := make([]*simulatedMember, size)
		stops := make([]context.CancelFunc, size)
		for i := range size {
			endpoint, err := network.Listen(addrOf(i))
			if err != nil {
				t.Fatal(err)
			}
			ears[i] = &recorder{here: make(map[string]bool)}
			nodes[i] = c.add(cluster.Member{Name: nodeName(i), Boot: bootID(i)}, endpoint, ears[i])
			ctx, stop := context.WithCancel(t.Context())
			stops[i] = stop
			defer stop()
			c.done.Go(func() { _ = nodes[i].Run(ctx) })
			time.Sleep(time.Duration(i%7) * 40 * time.Millisecond)
		}
		// knows checks who knows whom, after some time.
		knows := func(after time.Duration, wanted func(i, j int) bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			for i, e := range ears {
				if nodes[i].left() {
					continue
				}
				e.mu.Lock()
				for j := range size {
					if i != j && e.here[nodeName(j)] != wanted(i, j) {
						t.Errorf("%s knows %s: %v", nodeName(i), nodeName(j), e.here[nodeName(j)])
					}
				}
				if len(e.twice) > 0 {
					t.Errorf("%s was notified twice of %v", nodeName(i), e.twice)
				}
				e.mu.Unlock()
			}
		}
		knows(disseminationTime(size)+time.Second, func(int, int) bool { return true })

		nodes[3].Broadcast("news", []byte("of the day"))
		time.Sleep(2 * time.Second)
		if missed := countIf(ears, func(e *recorder) bool { return e.packets == 0 }); missed > size-gossipTo {
			t.Errorf("%d of %d did not receive a broadcast", missed, size)
		}

		stops[7]()
		nodes[8].killed.Store(true)
		stops[8]()
		knows(disseminationTime(size)+time.Second, func(_, j int) bool { return j != 7 })
		knows(dying, func(_, j int) bool { return j != 7 && j != 8 })

		side := func(a netip.AddrPort) int { return int(a.Addr().As4()[3]) % 2 }
		c.done.Go(func() { c.partition(side, time.Minute) })
		knows(dying+disseminationTime(size)+time.Second, func(i, j int) bool { return j != 7 && j != 8 && i%2 == j%2 })
		knows(time.Minute, func(_, j int) bool { return j != 7 && j != 8 })

		if err := nodes[0].Send(wire.MemberIDOf("nobody", "", 0), nil); err == nil {
			t.Error("sending to an unknown member succeeds")
		}
	})
}

func countIf[T any](list []T, f func(T) bool) int {
	n := 0
	for _, x := range list {
		if f(x) {
			n++
		}
	}
	return n
}
