package gossip

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxInbox bounds the datagrams that wait, and with it about 4 MB.
	maxInbox = 4096
	// maxCalls bounds the calls of the agent and the changes of members that wait: all leases and members can change
	// at once.
	maxCalls = lease.MaxLeases + 1<<15
	// maxPackets and maxTaken are how many of them are taken at once: others wait while they are handled.
	maxPackets = 512
	maxTaken   = 4096
)

// input is what waits for the loop. It implements [members.Handler]. Its methods are safe for concurrent use and
// never wait, but for Serve.
type input struct {
	g *Gossip
	// wake has one value when there is something to take.
	wake chan struct{}

	mu      sync.Mutex
	packets []packet
	calls   []func(now time.Time)
}

type packet struct {
	from    wire.MemberID
	payload []byte
}

func (in *input) take() ([]packet, []func(now time.Time)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	packets, calls := first(&in.packets, maxPackets), first(&in.calls, maxTaken)
	if len(in.packets)+len(in.calls) > 0 {
		in.signal()
	}
	return packets, calls
}

// first takes the first n elements of a list.
func first[E any](list *[]E, n int) []E {
	all := *list
	if n = min(n, len(all)); n == len(all) {
		*list = nil
	} else {
		*list = all[n:]
	}
	return all[:n]
}

func (in *input) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// add adds to one of the lists if there is room, and wakes the loop. Otherwise it counts a drop.
func add[E any](in *input, list *[]E, e E, most int, drop string) bool {
	in.mu.Lock()
	ok := len(*list) < most
	if ok {
		*list = append(*list, e)
	}
	in.mu.Unlock()
	if !ok {
		in.g.count.drop(drop)
	}
	in.signal()
	return ok
}

// call has the loop do something, and reports whether there was room for it.
func (in *input) call(f func(now time.Time)) bool { return add(in, &in.calls, f, maxCalls, dropCalls) }

// Receive implements [members.Handler].
func (in *input) Receive(from wire.MemberID, _ netip.AddrPort, payload []byte) {
	add(in, &in.packets, packet{from, slices.Clone(payload)}, maxInbox, dropInbox)
}

// Serve implements [members.Handler].
func (in *input) Serve(ctx context.Context, request []byte) []byte { return in.g.serve(ctx, request) }

// Joined implements [members.Handler].
func (in *input) Joined(m members.Member) { in.call(func(now time.Time) { in.g.joined(m, now) }) }

// Left implements [members.Handler].
func (in *input) Left(m members.Member, gracefully bool) {
	in.call(func(now time.Time) { in.g.changed(in.g.roster.Leave(m.ID, gracefully, now), now) })
}
