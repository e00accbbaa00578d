// Package simnet is a network in memory for many agents in one process. Packets are lost, late and out of
// order; streams are only late; partitions separate nodes; nodes are suspended; and it counts what each node
// sends. It works in the virtual time of testing/synctest. It does not know the payload.
package simnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Options describe a network. The zero value loses nothing and delivers at once.
type Options struct {
	// Seed of the random numbers. Goroutines that act at the same moment have no order, so the same
	// seed gives similar runs, not equal ones.
	Seed uint64
	// Loss is the share of packets that are lost, 0 to 1. A stream is never broken by it:
	// a loss costs it Resend.
	Loss float64
	// Delay is the time of every packet and Jitter the largest random addition, which may change the
	// order of packets.
	Delay, Jitter time.Duration
	// Inbox is how many unread packets a node holds; others are lost. The default is 1,024, about what
	// the buffer of a UDP socket holds.
	Inbox int
}

const (
	// Resend is how much later the bytes of a stream arrive that were lost once.
	Resend = 200 * time.Millisecond
	// tick is the resolution of arrivals. Packets within one arrive together, which makes thousands of
	// nodes affordable.
	tick = time.Millisecond

	defaultInbox = 1024
	// maxStream bounds the bytes on their way in one direction of a stream.
	maxStream = 64 << 20
	// backlog bounds the streams that wait to be accepted by one node.
	backlog = 1024
)

// Network connects endpoints. Its methods are safe for concurrent use.
type Network struct {
	opts  Options
	start time.Time
	stop  chan struct{}
	wake  chan struct{}
	done  sync.WaitGroup

	mu        sync.RWMutex
	endpoints map[netip.AddrPort]*Endpoint
	side      func(netip.AddrPort) int // nil: all reach each other

	queueMu sync.Mutex
	due     map[int64][]delivery // by tick
	ticks   []int64              // the keys of due, the last one first
	spare   [][]delivery
}

// delivery is one packet on its way.
type delivery struct {
	to   *Endpoint
	from *Endpoint
	buf  []byte
}

// New returns a network that carries packets until Close. Make and close it in the same synctest bubble.
func New(opts Options) *Network {
	if opts.Inbox <= 0 {
		opts.Inbox = defaultInbox
	}
	n := &Network{
		opts:      opts,
		start:     time.Now(),
		stop:      make(chan struct{}),
		wake:      make(chan struct{}, 1),
		endpoints: make(map[netip.AddrPort]*Endpoint),
		due:       make(map[int64][]delivery),
	}
	n.done.Go(n.deliver)
	return n
}

// Close ends the network and waits for its goroutine. Packets in transit are lost.
func (n *Network) Close() {
	close(n.stop)
	n.done.Wait()
}

// Listen gives an address to a new endpoint. It fails if the address is taken.
func (n *Network) Listen(addr netip.AddrPort) (*Endpoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[addr] != nil {
		return nil, fmt.Errorf("listening on %s: address in use", addr)
	}
	e := newEndpoint(n, addr, rand.New(rand.NewPCG(n.opts.Seed, seedOf(addr))))
	n.endpoints[addr] = e
	return e, nil
}

// Partition splits the network: from now on only endpoints with the same side reach each other. side is
// called often and concurrently. Nil heals the network.
func (n *Network) Partition(side func(netip.AddrPort) int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.side = side
}

// lookup returns the endpoint of an address, or nil if from cannot reach any there.
func (n *Network) lookup(from *Endpoint, addr netip.AddrPort) *Endpoint {
	n.mu.RLock()
	to := n.endpoints[addr]
	n.mu.RUnlock()
	if to == nil || !n.connected(from, to) {
		return nil
	}
	return to
}

func (n *Network) connected(a, b *Endpoint) bool {
	if b.sleeps() {
		return false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.side == nil || n.side(a.addr) == n.side(b.addr)
}

func (n *Network) forget(e *Endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[e.addr] == e {
		delete(n.endpoints, e.addr)
	}
}

// send puts a packet on its way. It never waits.
func (n *Network) send(d delivery, delay time.Duration) {
	at := int64((time.Since(n.start) + delay + tick - 1) / tick)
	n.queueMu.Lock()
	defer n.queueMu.Unlock()
	list, ok := n.due[at]
	if !ok {
		if last := len(n.spare) - 1; last >= 0 {
			list, n.spare = n.spare[last], n.spare[:last]
		}
		i, _ := slices.BinarySearchFunc(n.ticks, at, func(a, b int64) int { return int(b - a) })
		n.ticks = slices.Insert(n.ticks, i, at)
		if i == len(n.ticks)-1 {
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	}
	n.due[at] = append(list, d)
}

// next removes and returns the deliveries of the first tick if it is due; otherwise it returns the time
// until then, negative if there are none.
func (n *Network) next() ([]delivery, time.Duration) {
	n.queueMu.Lock()
	defer n.queueMu.Unlock()
	if len(n.ticks) == 0 {
		return nil, -1
	}
	first := n.ticks[len(n.ticks)-1]
	if wait := time.Duration(first)*tick - time.Since(n.start); wait > 0 {
		return nil, wait
	}
	n.ticks = n.ticks[:len(n.ticks)-1]
	list := n.due[first]
	delete(n.due, first)
	return list, 0
}

func (n *Network) deliver() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		list, wait := n.next()
		if wait == 0 {
			for _, d := range list {
				d.to.receive(d)
			}
			n.keep(list)
			continue
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-n.stop:
			return
		case <-n.wake:
		case <-due:
		}
	}
}

// keep saves an emptied list for another tick.
func (n *Network) keep(list []delivery) {
	clear(list)
	n.queueMu.Lock()
	defer n.queueMu.Unlock()
	if len(n.spare) < 64 {
		n.spare = append(n.spare, list[:0])
	}
}

func seedOf(addr netip.AddrPort) uint64 {
	seed := uint64(addr.Port())
	for _, b := range addr.Addr().As16() {
		seed = seed*1_099_511_628_211 + uint64(b)
	}
	return seed
}
