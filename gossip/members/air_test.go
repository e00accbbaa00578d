package members

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/transport"
)

// air is a network in memory, for long times in virtual time.
type air struct {
	mu    sync.Mutex
	ports map[netip.AddrPort]*port
	// lost reports whether a datagram, or all of a stream, is lost on the way.
	lost func(from, to netip.AddrPort, stream bool) bool
	// streams and datagrams count what was sent to each address.
	streams, datagrams map[netip.AddrPort]int
}

func newAir() *air {
	return &air{ports: make(map[netip.AddrPort]*port), streams: make(map[netip.AddrPort]int), datagrams: make(map[netip.AddrPort]int)}
}

// port is one node's sockets.
type port struct {
	air       *air
	at        netip.AddrPort
	datagrams chan sent
	streams   chan net.Conn
	closed    chan struct{}
	once      sync.Once
}

type sent struct {
	from netip.AddrPort
	b    []byte
}

var _ transport.Sockets = (*port)(nil)

// listen opens the sockets of an address, instead of those that are there.
func (a *air) listen(at netip.AddrPort) *port {
	p := &port{air: a, at: at, datagrams: make(chan sent, 4096), streams: make(chan net.Conn, 64), closed: make(chan struct{})}
	a.change(func() { a.ports[at] = p })
	return p
}

func (a *air) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// lose sets what is lost from now on.
func (a *air) lose(lost func(from, to netip.AddrPort, stream bool) bool) {
	a.change(func() { a.lost = lost })
}

// randomLoss loses a share of the datagrams.
func randomLoss(share float64) func(_, _ netip.AddrPort, stream bool) bool {
	random := rand.New(rand.NewPCG(1, 2))
	return func(_, _ netip.AddrPort, stream bool) bool { return !stream && random.Float64() < share }
}

// way returns who has an address, nil if nobody there is reached. What is closed reaches nobody.
func (a *air) way(from *port, to netip.AddrPort, stream bool) *port {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-from.closed:
		return nil
	default:
	}
	if stream {
		a.streams[to]++
	} else {
		a.datagrams[to]++
	}
	if a.lost != nil && a.lost(from.at, to, stream) {
		return nil
	}
	return a.ports[to]
}

func (a *air) streamsTo(to netip.AddrPort) (n int) {
	a.change(func() { n = a.streams[to] })
	return n
}

func (p *port) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case d := <-p.datagrams:
		return copy(b, d.b), d.from, nil
	case <-p.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (p *port) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if other := p.air.way(p, to, false); other != nil {
		select {
		case other.datagrams <- sent{p.at, slices.Clone(b)}:
		default:
		}
	}
	return len(b), nil
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case conn := <-p.streams:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	err := errors.New("connection refused")
	other := p.air.way(p, to, true)
	if other == nil {
		<-ctx.Done()
		err = ctx.Err()
	} else {
		near, far := net.Pipe()
		select {
		case other.streams <- conn{far, to, p.at}:
			return conn{near, p.at, to}, nil
		default:
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

// Close has nobody there from now on.
func (p *port) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.air.change(func() {
			if p.air.ports[p.at] == p {
				delete(p.air.ports, p.at)
			}
		})
	})
	return nil
}

// conn is one end of a stream. A last word that nobody reads, as TLS has it, is not waited for.
type conn struct {
	net.Conn
	local, remote netip.AddrPort
}

func (c conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }
func (c conn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(t.Add(-5 * time.Second))
}
