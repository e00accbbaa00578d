package simnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
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

// Endpoint is one node's end of a network, a [memberlist.NodeAwareTransport].
type Endpoint struct {
	network *Network
	addr    netip.AddrPort
	udp     *net.UDPAddr
	tcp     *net.TCPAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	down    chan struct{}

	mu     sync.Mutex
	sent   Traffic
	random *rand.Rand
	closed bool
}

var _ memberlist.NodeAwareTransport = (*Endpoint)(nil)

func newEndpoint(n *Network, addr netip.AddrPort, random *rand.Rand) *Endpoint {
	return &Endpoint{
		network: n,
		addr:    addr,
		udp:     net.UDPAddrFromAddrPort(addr),
		tcp:     net.TCPAddrFromAddrPort(addr),
		packets: make(chan *memberlist.Packet, n.opts.Inbox),
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

// FinalAdvertiseAddr is the endpoint's own address, whatever was configured.
func (e *Endpoint) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return e.udp.IP, e.udp.Port, nil
}

// WriteTo sends a packet. It never blocks, and returns no error for a lost packet, like UDP.
func (e *Endpoint) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	e.count(Traffic{Packets: 1, Bytes: uint64(len(b)) + headers})
	to := e.network.lookup(e, addr)
	lost, delay := e.draw()
	if lost || to == nil {
		e.count(Traffic{Lost: 1})
		return now, nil
	}
	// The sender may use its buffer again.
	e.network.send(delivery{to: to, from: e, buf: append([]byte(nil), b...)}, delay)
	return now, nil
}

// WriteToAddress is WriteTo.
func (e *Endpoint) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return e.WriteTo(b, addr.Addr)
}

// PacketCh is where packets arrive.
func (e *Endpoint) PacketCh() <-chan *memberlist.Packet { return e.packets }

// StreamCh is where streams of others arrive.
func (e *Endpoint) StreamCh() <-chan net.Conn { return e.streams }

// DialTimeout opens a stream. It takes a round trip, or the timeout if the address is unreachable.
func (e *Endpoint) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	fail := func(why string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Source: e.tcp, Err: fmt.Errorf("%s: %s", addr, why)}
	}
	lost, delay := e.draw()
	if lost {
		delay += Resend
	}
	if e.network.lookup(e, addr) == nil {
		delay = timeout
	}
	select {
	case <-time.After(min(2*delay, timeout)):
	case <-e.down:
		return fail("transport is shut down")
	}
	to := e.network.lookup(e, addr)
	if to == nil {
		return fail("timeout")
	}
	ours, theirs := newStream(e, to)
	select {
	case to.streams <- theirs:
		e.count(Traffic{Streams: 1})
		return ours, nil
	default:
		return fail("connection refused")
	}
}

// DialAddressTimeout is DialTimeout.
func (e *Endpoint) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return e.DialTimeout(addr.Addr, timeout)
}

// Shutdown removes the endpoint from the network and frees its address.
func (e *Endpoint) Shutdown() error {
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
	case e.packets <- &memberlist.Packet{Buf: d.buf, From: d.from.udp, Timestamp: time.Now()}:
	default:
		d.from.count(Traffic{Lost: 1, Overflowed: 1})
	}
}
