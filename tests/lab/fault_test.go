package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// flow is a pair of sockets that carries datagrams from one node to another.
type flow struct {
	from, to *net.UDPConn
	sent     int
}

func newFlow(l *T, from, to *Node, port uint16) *flow {
	l.Helper()
	on := netip.AddrPortFrom(to.Uplink(), port)
	in, err := to.ListenUDP(on)
	l.Do(err)
	l.Cleanup(func() { _ = in.Close() })
	out, err := from.DialUDP(from.Uplink(), on)
	l.Do(err)
	l.Cleanup(func() { _ = out.Close() })
	return &flow{from: out, to: in}
}

// send sends numbered datagrams.
func (c *flow) send(l *T, count int) {
	l.Helper()
	for range count {
		c.sent++
		_, err := fmt.Fprint(c.from, c.sent)
		l.Do(err)
	}
}

// next is the number of the next datagram that arrives, 0 for none.
func (c *flow) next(l *T, within time.Duration) (number int) {
	l.Helper()
	l.Do(c.to.SetReadDeadline(time.Now().Add(within)))
	buf := make([]byte, 100)
	size, err := c.to.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0
	}
	l.Do(err)
	_, err = fmt.Sscan(string(buf[:size]), &number)
	l.Do(err)
	return number
}

// arrives sends one more datagram and fails the test unless it is the next to arrive.
func (c *flow) arrives(l *T, what string) {
	l.Helper()
	c.send(l, 1)
	if got := c.next(l, settleTimeout); got != c.sent {
		l.Errorf("%s: datagram %d arrived, want %d", what, got, c.sent)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	a, b, c := l.Node(""), l.Node(""), l.Node("")
	ab, ba, ac, other := newFlow(l, a, b, 7), newFlow(l, b, a, 7), newFlow(l, a, c, 7), newFlow(l, a, b, 8)

	// Nothing is known of the neighbours yet, and they have to answer.
	remove := l.InjectFaults(Fault{From: a, To: b})
	ab.send(l, 3)
	ba.arrives(l, "against a one-way cut")
	ac.arrives(l, "past a one-way cut")
	remove()
	ab.arrives(l, "after a one-way cut")
	if err := a.Ping(b.Uplink6()); err != nil {
		t.Errorf("after a one-way cut: %v", err)
	}

	remove = l.InjectFaults(Fault{UDP: 7, To: b})
	ab.send(l, 3)
	other.arrives(l, "another port than the blocked one")
	server, err := listenTCP(b, netip.AddrPortFrom(b.Uplink(), 7))
	l.Do(err)
	defer server.Close()
	l.Do(a.Exec(func() error {
		conn, err := net.DialTimeout("tcp", server.Addr().String(), settleTimeout)
		if err == nil {
			err = conn.Close()
		}
		return err
	}))
	heal := l.InjectFaults(Fault{From: a, To: c})
	remove()
	ab.arrives(l, "after its port was blocked")
	ac.send(l, 1)
	heal()
	ac.arrives(l, "after both faults")

	remove = l.InjectFaults(Fault{From: a, To: b, Percent: 50})
	ab.send(l, 200)
	remove()
	lost := 0
	for number := ab.sent - 200; number < ab.sent; {
		next := ab.next(l, 200*time.Millisecond)
		if next == 0 {
			ab.send(l, 1) // the end was lost; this one is not
			continue
		}
		lost += next - number - 1
		number = next
	}
	// Beyond these bounds it would be once in 10^12 runs.
	if lost < 50 || lost > 150 {
		t.Errorf("lost %d of 200 datagrams, want about a half", lost)
	}
}

func listenTCP(n *Node, on netip.AddrPort) (listener net.Listener, err error) {
	err = n.Exec(func() (err error) {
		listener, err = net.Listen("tcp", on.String())
		return err
	})
	return listener, err
}

func TestRecord(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	a, b := l.Node(""), l.Node("")
	r, err := l.Record(7, 2)
	l.Do(err)
	there, other := newFlow(l, a, b, 7), newFlow(l, a, b, 8)
	for range 3 {
		other.arrives(l, "another port")
		there.arrives(l, "the port")
	}
	l.Eventually("two datagrams", func() error {
		if n := len(r.Datagrams()); n != 2 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	for i, d := range r.Datagrams() {
		if d.From.Addr() != a.Uplink() || d.To != netip.AddrPortFrom(b.Uplink(), 7) || string(d.Payload) != fmt.Sprint(i+1) {
			t.Errorf("datagram %d: got %v", i, d)
		}
	}
}
