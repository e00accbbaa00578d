package gossip

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxInbox bounds the datagrams that wait, and with it about 4 MB.
	maxInbox = 4096
	// maxPackets is how many of them are taken at once: others wait while they are handled.
	maxPackets = 512
	// maxCalls bounds the calls of the agent that wait.
	maxCalls = 4096
	// maxLeases bounds the changes of leases that wait: there are no more leases.
	maxLeases = lease.MaxLeases + lease.MaxWaiting
)

// input is what waits for the loop. It implements [members.Handler]. Its methods are safe for concurrent use and
// never wait, but for Serve.
type input struct {
	g *Gossip
	// wake has one value when there is something to take.
	wake chan struct{}

	mu sync.Mutex
	waiting
}

// waiting is what the loop takes at once.
type waiting struct {
	packets []packet
	members []memberChange
	leases  map[leaseID]leaseChange
	calls   []func()
}

type packet struct {
	from    wire.MemberID
	payload []byte
}

// memberChange says that a member is there, or is not any more.
type memberChange struct {
	member           members.Member
	left, gracefully bool
}

// leaseID identifies a lease of this node.
type leaseID struct {
	key    detector.Key
	holder detector.HolderID
}

// leaseChange is the last that the agent said of one lease.
type leaseChange struct {
	key     detector.Key
	holder  detector.HolderID
	binding cluster.Binding
	gone    bool
	others  []string
}

func newInput(g *Gossip) *input { return &input{g: g, wake: make(chan struct{}, 1)} }

func (in *input) take() waiting {
	in.mu.Lock()
	defer in.mu.Unlock()
	w := in.waiting
	n := min(len(w.packets), maxPackets)
	in.waiting = waiting{packets: w.packets[n:]}
	w.packets = w.packets[:n]
	if len(in.packets) > 0 {
		in.signal()
	} else {
		in.packets = nil
	}
	return w
}

func (in *input) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// add changes what waits and wakes the loop.
func (in *input) add(change func()) {
	in.mu.Lock()
	change()
	in.mu.Unlock()
	in.signal()
}

// Receive implements [members.Handler].
func (in *input) Receive(from wire.MemberID, _ netip.AddrPort, payload []byte) {
	in.add(func() {
		if len(in.packets) >= maxInbox {
			in.g.count.drop(dropInbox)
			return
		}
		in.packets = append(in.packets, packet{from, slices.Clone(payload)})
	})
}

// Serve implements [members.Handler].
func (in *input) Serve(ctx context.Context, request []byte) []byte { return in.g.serve(ctx, request) }

// Joined implements [members.Handler].
func (in *input) Joined(m members.Member) {
	in.add(func() { in.members = append(in.members, memberChange{member: m}) })
}

// Left implements [members.Handler].
func (in *input) Left(m members.Member, gracefully bool) {
	in.add(func() { in.members = append(in.members, memberChange{m, true, gracefully}) })
}

// lease keeps the last change of a lease.
func (in *input) lease(c leaseChange) {
	id := leaseID{c.key, c.holder}
	in.add(func() {
		if in.leases == nil {
			in.leases = make(map[leaseID]leaseChange)
		}
		if _, ok := in.leases[id]; !ok && len(in.leases) >= maxLeases {
			in.g.count.drop(dropLeases)
			return
		}
		in.leases[id] = c
	})
}

// call has the loop do something, and reports whether there was room for it.
func (in *input) call(f func()) (ok bool) {
	in.add(func() {
		if ok = len(in.calls) < maxCalls; ok {
			in.calls = append(in.calls, f)
		} else {
			in.g.count.drop(dropCalls)
		}
	})
	return ok
}
