package simnet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/transport"
)

// headers is what IPv4 and UDP add to a packet, in bytes; segment is how much of a stream
// goes into one, which then has as much overhead and the rest of a TCP header.
const (
	headers    = 28
	segment    = 1448
	tcpHeaders = 52
)

// Traffic is what a node has sent. Bytes are those of the IP packets.
type Traffic struct {
	Packets, Bytes             uint64 // UDP
	Streams                    uint64 // streams opened
	StreamPackets, StreamBytes uint64 // TCP, without acknowledgements
	// Lost were sent and never arrived: by chance, a partition, a missing receiver or its full inbox.
	// Overflowed are the last kind.
	Lost, Overflowed uint64
}

// Add returns the sum of both.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{
		t.Packets + o.Packets, t.Bytes + o.Bytes,
		t.Streams + o.Streams, t.StreamPackets + o.StreamPackets, t.StreamBytes + o.StreamBytes,
		t.Lost + o.Lost, t.Overflowed + o.Overflowed,
	}
}

// Sub returns what was sent since o.
func (t Traffic) Sub(o Traffic) Traffic {
	return t.Add(Traffic{-o.Packets, -o.Bytes, -o.Streams, -o.StreamPackets, -o.StreamBytes, -o.Lost, -o.Overflowed})
}

// Endpoint is one node's end of a network, a [transport.Sockets].
type Endpoint struct {
	network *Network
	addr    netip.AddrPort
	packets chan delivery
	streams chan net.Conn
	down    chan struct{}

	mu        sync.Mutex
	sent      Traffic
	random    *rand.Rand
	closed    bool
	suspended chan struct{} // nil, or closed when the node resumes
}

var _ transport.Sockets = (*Endpoint)(nil)

func newEndpoint(n *Network, addr netip.AddrPort, random *rand.Rand) *Endpoint {
	return &Endpoint{
		network: n,
		addr:    addr,
		packets: make(chan delivery, n.opts.Inbox),
		streams: make(chan net.Conn, backlog),
		down:    make(chan struct{}),
		random:  random,
	}
}

// Addr is the address the endpoint listens on.
func (e *Endpoint) Addr() netip.AddrPort { return e.addr }

// Traffic returns what the endpoint has sent so far.
func (e *Endpoint) Traffic() Traffic {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent
}

func (e *Endpoint) count(more Traffic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = e.sent.Add(more)
}

// Suspend suspends the node: nobody reaches it, and whoever sends, receives or reads there waits until
// Resume or Close.
func (e *Endpoint) Suspend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.suspended == nil {
		e.suspended = make(chan struct{})
	}
}

// Resume ends what Suspend began.
func (e *Endpoint) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.suspended != nil {
		close(e.suspended)
		e.suspended = nil
	}
}

// Awake waits until the node is not suspended, or closed.
func (e *Endpoint) Awake() {
	e.mu.Lock()
	suspended := e.suspended
	e.mu.Unlock()
	if suspended != nil {
		select {
		case <-suspended:
		case <-e.down:
		}
	}
}

func (e *Endpoint) sleeps() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.suspended != nil
}

// ReadFromUDPAddrPort waits for a packet.
func (e *Endpoint) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case d := <-e.packets:
		e.Awake()
		return copy(b, d.buf), d.from.addr, nil
	case <-e.down:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

// WriteToUDPAddrPort sends a packet. It returns no error for a lost packet, like UDP.
func (e *Endpoint) WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	e.Awake()
	e.count(Traffic{Packets: 1, Bytes: uint64(len(b)) + headers})
	to := e.network.lookup(e, addr)
	lost, delay := e.draw()
	if lost || to == nil {
		e.count(Traffic{Lost: 1})
		return len(b), nil
	}
	// The sender may use its buffer again.
	e.network.send(delivery{to: to, from: e, buf: append([]byte(nil), b...)}, delay)
	return len(b), nil
}

// Accept waits for a stream.
func (e *Endpoint) Accept() (net.Conn, error) {
	select {
	case conn := <-e.streams:
		e.Awake()
		return conn, nil
	case <-e.down:
		return nil, net.ErrClosed
	}
}

// Dial opens a stream. It takes a round trip, or until ctx ends if the address is unreachable.
func (e *Endpoint) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: err}
	}
	e.Awake()
	lost, delay := e.draw()
	if lost {
		delay += Resend
	}
	var arrived <-chan time.Time
	if e.network.lookup(e, addr) != nil {
		arrived = time.After(2 * delay)
	}
	select {
	case <-arrived:
	case <-ctx.Done():
		return fail(ctx.Err())
	case <-e.down:
		return fail(net.ErrClosed)
	}
	to := e.network.lookup(e, addr)
	if to == nil {
		return fail(context.DeadlineExceeded)
	}
	ours, theirs := newStream(e, to)
	select {
	case to.streams <- theirs:
		e.count(Traffic{Streams: 1})
		return ours, nil
	default:
		return fail(errors.New("connection refused"))
	}
}

// Close removes the endpoint from the network and frees its address.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		close(e.down)
		e.network.forget(e)
	}
	return nil
}

// draw draws whether a packet is lost, and its delay.
func (e *Endpoint) draw() (lost bool, delay time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := &e.network.opts
	delay = o.Delay
	if o.Jitter > 0 {
		delay += time.Duration(e.random.Int64N(int64(o.Jitter)))
	}
	return o.Loss > 0 && e.random.Float64() < o.Loss, delay
}

// receive puts a packet into the inbox.
func (e *Endpoint) receive(d delivery) {
	select {
	case <-e.down:
		d.from.count(Traffic{Lost: 1})
		return
	default:
	}
	select {
	case e.packets <- d:
	default:
		d.from.count(Traffic{Lost: 1, Overflowed: 1})
	}
}
