package gossip

import (
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/lease"
)

const (
	// maxPackets bounds the datagrams that wait, and with it about 4 MB.
	maxPackets = 4096
	// maxCalls bounds the calls of the agent and the changes of members that wait: all leases and members can change
	// at once.
	maxCalls = lease.MaxLeases + 1<<15
	// maxTaken is how many of all one turn of the loop handles: others wait for the next.
	maxTaken = 512
)

// input is what waits for the loop, in the order in which it came. It must not know what that is. Its methods are safe for concurrent use
// and never wait.
type input struct {
	count *counters
	wake  chan struct{} // has one value when there is something to handle

	mu             sync.Mutex
	waiting        []task
	packets, calls int
}

type task struct {
	do func(now time.Time)
	of *int // packets or calls
}

// take returns what to do in one turn.
func (in *input) take() []task {
	in.mu.Lock()
	defer in.mu.Unlock()
	taken := in.waiting
	if in.waiting = nil; len(taken) > maxTaken {
		taken, in.waiting = taken[:maxTaken], taken[maxTaken:]
		in.signal()
	}
	for _, t := range taken {
		*t.of--
	}
	return taken
}

func (in *input) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// add has the loop do something, and reports whether there was room for it. Otherwise it counts a drop.
func (in *input) add(do func(now time.Time), of *int, most int, drop string) bool {
	defer in.signal()
	in.mu.Lock()
	defer in.mu.Unlock()
	if *of >= most {
		in.count.drop(drop)
		return false
	}
	*of++
	in.waiting = append(in.waiting, task{do, of})
	return true
}

// call has the loop do something of the agent or the membership.
func (in *input) call(f func(now time.Time)) bool { return in.add(f, &in.calls, maxCalls, dropCalls) }

// packet has the loop handle a datagram.
func (in *input) packet(f func(now time.Time)) bool {
	return in.add(f, &in.packets, maxPackets, dropInbox)
}
