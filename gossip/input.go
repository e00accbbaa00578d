package gossip

import (
	"slices"
	"sync"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxInbox bounds the packets that wait, and with it about 4 MB.
	maxInbox = 4096
	// maxPackets is how many of them are taken at once: others wait while they are taken in.
	maxPackets = 512
	// maxCalls bounds the calls of the agent that wait.
	maxCalls = 4096
	// maxLeases bounds the changes of leases that wait: there are no more leases.
	maxLeases = lease.MaxLeases + lease.MaxWaiting
)

// input is what waits for the loop. Its methods are safe for concurrent use and never
// wait.
type input struct {
	count *counters
	// wake has one value when there is something to take.
	wake chan struct{}

	mu      sync.Mutex
	packets [][]byte
	members map[wire.MemberID][]memberNews
	leases  map[leaseID]leaseChange
	calls   []func()
}

// memberNews says that a member is there, or is not any more.
type memberNews struct {
	member members.Member
	left   bool
}

// leaseID names a lease of this node.
type leaseID struct {
	key    detector.Key
	holder detector.HolderID
}

// leaseChange is the last that the agent said of one lease.
type leaseChange struct {
	key    detector.Key
	holder detector.HolderID
	claim  cluster.Binding
	gone   bool
	rivals []string
}

func newInput(count *counters) *input {
	return &input{count: count, wake: make(chan struct{}, 1)}
}

// taken is what the loop takes at once.
type taken struct {
	packets [][]byte
	members map[wire.MemberID][]memberNews
	leases  map[leaseID]leaseChange
	calls   []func()
}

func (in *input) take() taken {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := min(len(in.packets), maxPackets)
	t := taken{in.packets[:n:n], in.members, in.leases, in.calls}
	in.packets, in.members, in.leases, in.calls = in.packets[n:], nil, nil, nil
	if len(in.packets) > 0 {
		select {
		case in.wake <- struct{}{}:
		default:
		}
	} else {
		in.packets = nil
	}
	return t
}

// add changes what waits and wakes the loop.
func (in *input) add(change func()) {
	in.mu.Lock()
	change()
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// Packet implements [members.Handler].
func (in *input) Packet(packet []byte) {
	if len(packet) > wire.MaxPacket {
		in.count.drop(wire.Reason(wire.ErrOversize))
		return
	}
	in.add(func() {
		if len(in.packets) >= maxInbox {
			in.count.drop(dropInbox)
			return
		}
		in.packets = append(in.packets, slices.Clone(packet))
	})
}

// Joined implements [members.Handler].
func (in *input) Joined(m members.Member) { in.member(memberNews{member: m}) }

// Updated implements [members.Handler].
func (in *input) Updated(m members.Member) { in.member(memberNews{member: m}) }

// Left implements [members.Handler].
func (in *input) Left(m members.Member, _ bool) { in.member(memberNews{member: m, left: true}) }

// member keeps the last two news of a member: one that left and is back has to be told
// again what it may have forgotten, and one that came and left is to be known by name.
func (in *input) member(n memberNews) {
	id := n.member.ID
	in.add(func() {
		if in.members == nil {
			in.members = make(map[wire.MemberID][]memberNews)
		}
		news := in.members[id]
		if last := len(news) - 1; last >= 0 && news[last].left == n.left {
			news[last] = n
		} else {
			news = append(news, n)
		}
		in.members[id] = news[max(0, len(news)-2):]
	})
}

// lease keeps the last change of a lease.
func (in *input) lease(c leaseChange) {
	id := leaseID{c.key, c.holder}
	in.add(func() {
		if in.leases == nil {
			in.leases = make(map[leaseID]leaseChange)
		}
		if _, ok := in.leases[id]; !ok && len(in.leases) >= maxLeases {
			in.count.drop(dropLeases)
			return
		}
		in.leases[id] = c
	})
}

// call has the loop do something, and says whether there was room for it.
func (in *input) call(f func()) (ok bool) {
	in.add(func() {
		if ok = len(in.calls) < maxCalls; ok {
			in.calls = append(in.calls, f)
		} else {
			in.count.drop(dropCalls)
		}
	})
	return ok
}
