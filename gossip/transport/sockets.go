package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// receiveBuffer is how many bytes the kernel is asked to hold while nobody reads.
const receiveBuffer = 2 << 20

// Sockets are what a transport sends and receives with: see [Listen], or a simulation.
type Sockets interface {
	// ReadFromUDPAddrPort waits for a datagram.
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	// Accept waits for a connection.
	Accept() (net.Conn, error)
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Close ends both.
	Close() error
}

// Listener is the sockets of a port of this machine.
type Listener struct {
	*net.TCPListener
	*net.UDPConn
}

// Listen listens at an address, empty for all, by UDP and TCP; with port 0 at a port that both have
// free. Errors are for users.
func Listen(bind string, port int) (*Listener, error) {
	for try := 0; ; try++ {
		l, err := listen(bind, port)
		if err == nil || port != 0 || !errors.Is(err, syscall.EADDRINUSE) || try == 20 {
			return l, err
		}
	}
}

func listen(bind string, port int) (*Listener, error) {
	family := "" // both
	if addr, _ := netip.ParseAddr(bind); addr.Is4() {
		family = "4"
	}
	tcp, err := net.Listen("tcp"+family, net.JoinHostPort(bind, fmt.Sprint(port)))
	if err != nil {
		return nil, listenError(err)
	}
	l := &Listener{TCPListener: tcp.(*net.TCPListener)}
	udp, err := net.ListenPacket("udp"+family, net.JoinHostPort(bind, fmt.Sprint(l.Port())))
	if err != nil {
		tcp.Close()
		return nil, listenError(err)
	}
	l.UDPConn = udp.(*net.UDPConn)
	l.SetReadBuffer(receiveBuffer) //nolint:errcheck // as much as the kernel allows
	return l, nil
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

// Port is the port of both sockets.
func (l *Listener) Port() int { return l.Addr().(*net.TCPAddr).Port }

// Dial implements [Sockets].
func (l *Listener) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", to.String())
}

// Close implements [Sockets].
func (l *Listener) Close() error { return errors.Join(l.TCPListener.Close(), l.UDPConn.Close()) }
