package members

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// guard is a transport with a door of its own: streams from this agent to itself, which
// never touch the network. See [Members.refresh].
type guard struct {
	memberlist.NodeAwareTransport
	streams chan net.Conn
	done    chan struct{}
	close   sync.Once
}

func newGuard(inner memberlist.Transport) *guard {
	g := &guard{streams: make(chan net.Conn), done: make(chan struct{})}
	var ok bool
	if g.NodeAwareTransport, ok = inner.(memberlist.NodeAwareTransport); !ok {
		g.NodeAwareTransport = nameless{inner}
	}
	go g.forward()
	return g
}

// forward brings the streams of the network to those from here.
func (g *guard) forward() {
	for {
		select {
		case <-g.done:
			return
		case conn := <-g.NodeAwareTransport.StreamCh():
			select {
			case g.streams <- conn:
			case <-g.done:
				conn.Close()
				return
			}
		}
	}
}

// StreamCh implements memberlist.Transport.
func (g *guard) StreamCh() <-chan net.Conn { return g.streams }

// Shutdown implements memberlist.Transport.
func (g *guard) Shutdown() error {
	err := g.NodeAwareTransport.Shutdown()
	g.close.Do(func() { close(g.done) })
	return err
}

// dialSelf opens a stream to this agent.
func (g *guard) dialSelf(timeout time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case g.streams <- far:
		return near, nil
	case <-g.done:
		return nil, net.ErrClosed
	case <-time.After(timeout):
		return nil, errors.New("memberlist does not accept the stream")
	}
}

// nameless is a transport that finds nodes by their address alone.
type nameless struct{ memberlist.Transport }

func (t nameless) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, to.Addr)
}

func (t nameless) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(to.Addr, timeout)
}
