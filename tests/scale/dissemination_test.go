package scale

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

// recorder records the notifications of one member. It answers a request with its reverse.
type recorder struct {
	mu       sync.Mutex
	here     map[string]bool
	twice    []string // notified more than once
	received []string
}

func (e *recorder) Receive(_ wire.MemberID, _ netip.AddrPort, payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.received = append(e.received, string(payload))
}

func (e *recorder) Serve(_ context.Context, request []byte) []byte {
	reply := slices.Clone(request)
	slices.Reverse(reply)
	return reply
}

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
		tw := newSimulation(t, size, true)
		defer tw.close()
		network, c := tw.network, tw.members
		ears := make([]*recorder, size)
		nodes := make([]*simulatedMember, size)
		stops := make([]context.CancelFunc, size)
		for i := range size {
			endpoint, err := network.Listen(addrOf(i))
			if err != nil {
				t.Fatal(err)
			}
			ears[i] = &recorder{here: make(map[string]bool)}
			opts := tw.membership(i, 0, endpoint)
			opts.Handler = ears[i]
			if nodes[i], err = c.open(opts); err != nil {
				t.Fatal(err)
			}
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

		for range 10 { // some may be lost
			if err := nodes[3].Send(nodes[4].member.ID, []byte("a message")); err != nil {
				t.Error(err)
			}
		}
		var reply string
		err := nodes[3].Request(t.Context(), nodes[4].member.ID, []byte("abc"), make(chan struct{}, 1), func(b []byte) error {
			reply = string(b)
			return nil
		})
		if err != nil || reply != "cba" {
			t.Errorf("the reply is %q, %v", reply, err)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if got := ears[4].received; !slices.Contains(got, "a message") {
			t.Errorf("received %q", got)
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

		c.suspended(nodes[9])
		knows(dying+disseminationTime(size)+time.Second, func(_, j int) bool { return j < 7 || j > 9 })
		nodes[9].Rejoin()
		knows(disseminationTime(size)+time.Second, func(_, j int) bool { return j != 7 && j != 8 })

		if err := nodes[0].Send(wire.MemberIDOf("nobody", "", 0), nil); !errors.Is(err, members.ErrUnknownMember) {
			t.Errorf("sending to an unknown member: %v", err)
		}
	})
}
