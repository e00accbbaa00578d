package members

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxDatagram is larger than anything a member sends in one.
	maxDatagram = 1600
	// receiveBuffer is what the kernel is asked to hold while nobody reads.
	receiveBuffer = 2 << 20
	// So many connections may be open to this agent, and from one address.
	maxStreams     = 64
	maxStreamsFrom = 16
)

// network is memberlist's transport over UDP and TCP.
//
// It is not memberlist's own because that one allocates 64 KiB for every datagram, which
// stay while the message waits; resolves names while it answers whoever put a strange
// address into a ping; and takes any number of connections.
type network struct {
	seals   *seals // nil without keys
	drops   *drops
	tcp     *net.TCPListener
	udp     *net.UDPConn
	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends with Shutdown
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	open                *quota // connections to this agent
	incoming, streaming *room  // bytes of those, and of answers
}

// listenNetwork listens at an address, empty for all, by UDP and TCP. With port 0 it takes
// a port that both have free.
func listenNetwork(bind string, port int, seals *seals, drops *drops) (*network, error) {
	n := &network{
		seals: seals, drops: drops,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		open:     newQuota(maxStreams, maxStreamsFrom),
		incoming: newRoom(maxStreaming, maxStreamingFrom), streaming: newRoom(maxStreaming, maxStreamingFrom),
	}
	for try := 0; ; try++ {
		err := n.listen(bind, port)
		if err == nil {
			break
		}
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) || try == 20 {
			return nil, err
		}
	}
	n.udp.SetReadBuffer(receiveBuffer) // as much as the kernel allows
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.wg.Go(n.accept)
	n.wg.Go(n.receive)
	return n, nil
}

func (n *network) listen(bind string, port int) error {
	host, family := "", "" // both families
	if bind != "" {
		addr, err := netip.ParseAddr(bind)
		if err != nil {
			return fmt.Errorf("--bind %q is not an address", bind)
		}
		host = addr.String()
		if addr.Is4() {
			family = "4"
		}
	}
	tcp, err := net.Listen("tcp"+family, net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return listenError(err)
	}
	n.tcp = tcp.(*net.TCPListener)
	udp, err := net.ListenPacket("udp"+family, net.JoinHostPort(host, fmt.Sprint(n.port())))
	if err != nil {
		tcp.Close()
		return listenError(err)
	}
	n.udp = udp.(*net.UDPConn)
	return nil
}

func listenError(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listening for gossip: the port is in use; stop the program that uses it, or choose another --gossip-port: %w", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listening for gossip: this node does not have the address; choose another --bind: %w", err)
	}
	return fmt.Errorf("listening for gossip: %w", err)
}

// port is the port that both listen at.
func (n *network) port() int { return n.tcp.Addr().(*net.TCPAddr).Port }

// FinalAdvertiseAddr implements memberlist.Transport. The address is chosen before.
func (n *network) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, err
	}
	return addr.Unmap().AsSlice(), port, nil
}

// WriteTo implements memberlist.Transport. The address must be one: names are never
// resolved here. Errors of the network are as memberlist wants them, a *net.OpError.
func (n *network) WriteTo(b []byte, to string) (time.Time, error) {
	at, err := parseAddress(to)
	if err != nil {
		return time.Time{}, err
	}
	_, err = n.udp.WriteToUDPAddrPort(b, at)
	return time.Now(), err
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (n *network) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return n.WriteTo(b, to.Addr)
}

// PacketCh implements memberlist.Transport.
func (n *network) PacketCh() <-chan *memberlist.Packet { return n.packets }

// DialTimeout implements memberlist.Transport. The connection ends with the transport.
func (n *network) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	at, err := parseAddress(to)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(n.ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	s := &stream{Conn: conn, release: onEnd(n.ctx, conn), drops: n.drops, from: at.Addr(), room: n.streaming}
	return newDialled(s, n.seals), nil
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (n *network) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return n.DialTimeout(to.Addr, timeout)
}

// StreamCh implements memberlist.Transport.
func (n *network) StreamCh() <-chan net.Conn { return n.streams }

// Shutdown implements memberlist.Transport.
func (n *network) Shutdown() error {
	n.cancel()
	n.tcp.Close()
	n.udp.Close()
	n.incoming.end()
	n.streaming.end()
	n.wg.Wait()
	return nil
}

// receive hands datagrams over until Shutdown.
func (n *network) receive() {
	buf := make([]byte, maxDatagram+1)
	var wait pause
	for {
		size, from, err := n.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if wait.fails(n.ctx) {
				return
			}
			continue
		}
		wait = 0
		if size == 0 || size > maxDatagram {
			n.drops.add(dropOversize)
			continue
		}
		if !vetDatagram(buf[:size], n.seals) {
			n.drops.add(dropMalformed)
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		packet := &memberlist.Packet{
			Buf: append([]byte(nil), buf[:size]...), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now(),
		}
		select {
		case n.packets <- packet:
		case <-n.ctx.Done():
			return
		}
	}
}

// accept hands connections over until Shutdown.
func (n *network) accept() {
	var wait pause
	for {
		conn, err := n.tcp.AcceptTCP()
		if err != nil {
			if wait.fails(n.ctx) {
				return
			}
			continue
		}
		wait = 0
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if !n.open.take(from, 1) {
			n.drops.add(dropStream)
			conn.Close()
			continue
		}
		stop := onEnd(n.ctx, conn)
		release := func() { stop(); n.open.give(from, 1) }
		s := &stream{Conn: conn, release: release, drops: n.drops, from: from, room: n.incoming}
		n.wg.Go(func() { n.hand(s) })
	}
}

// hand hands a connection over once it has begun as one of a member.
func (n *network) hand(s *stream) {
	conn, err := vet(s, n.seals)
	if err != nil {
		if !errors.Is(err, io.EOF) { // somebody looks whether the port is open
			s.refuse()
		}
		s.Close()
		return
	}
	select {
	case n.streams <- conn:
	case <-n.ctx.Done():
		s.Close()
	}
}

// pause is how long to wait after an error of the network.
type pause time.Duration

// fails waits, longer each time, and says whether ctx has ended.
func (p *pause) fails(ctx context.Context) (ended bool) {
	*p = min(max(2*(*p), pause(5*time.Millisecond)), pause(time.Second))
	select {
	case <-ctx.Done():
		return true
	case <-time.After(time.Duration(*p)):
		return ctx.Err() != nil
	}
}

// parseAddress reads an address and port of one node.
func parseAddress(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address and port", text)
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	return at, wantReachable(at)
}
