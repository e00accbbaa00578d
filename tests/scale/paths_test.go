package scale

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// arrivals are the members that have received something.
type arrivals struct {
	mu  sync.Mutex
	all map[wire.MemberID]bool
}

func (a *arrivals) has(id wire.MemberID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[id]
}

// arrival is the handler of one of them.
type arrival struct {
	*arrivals
	id wire.MemberID
}

func (a arrival) Receive(wire.MemberID, netip.AddrPort, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[a.id] = true
}

func (a arrival) Serve(context.Context, []byte) []byte { return nil }

// Without a key a member sends little to addresses that have not proven that they are there. Of 5,000 that join at
// once, each is proven and reached within two minutes, although 1% of all packets is lost and 1% of the
// members is not there.
func TestAllPathsAreProven(t *testing.T) {
	const size, absent, limit = 5000, 50, 2 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{Seed: 1, Loss: loss, Delay: 300 * time.Microsecond, Jitter: 2 * time.Millisecond})
		defer network.Close()
		reached := &arrivals{all: make(map[wire.MemberID]bool)}
		var first *transport.Transport
		for i := range size - absent {
			endpoint, err := network.Listen(addrOf(i))
			if err != nil {
				t.Fatal(err)
			}
			id := wire.MemberID(i + 1)
			member, err := transport.New(transport.Options{ID: id, Label: "scale", Handler: arrival{reached, id}, Sockets: endpoint})
			if err != nil {
				t.Fatal(err)
			}
			defer member.Shutdown() //nolint:errcheck // it only closes the endpoint
			if i == 0 {
				first = member
			}
		}
		random, began := rand.New(rand.NewPCG(1, 2)), time.Now()
		for left := size; left > absent+1; { // all but the absent and itself
			left = 0
			for _, i := range random.Perm(size) {
				if id := wire.MemberID(i + 1); !reached.has(id) {
					left++
					if err := first.Send(id, addrOf(i), []byte("a lease")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if time.Since(began) > limit {
				t.Fatalf("%d of %d members are not reached after %s", left-absent-1, size-absent-1, limit)
			}
			time.Sleep(time.Second)
		}
		t.Logf("all are reached after %s", time.Since(began))
	})
}
