package members

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// air is a network in memory, for long times under synctest.
type air struct {
	mu    sync.Mutex
	ports map[string]*airPort
	cut   func(from, to string) bool // TCP, too
	loss  func(from, to string) bool // of packets only
	dials map[string]int             // streams opened, by who did
}

// airPort is one node's transport.
type airPort struct {
	air     *air
	at      netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func newAir(t *testing.T) *air {
	// A bubble must end with no goroutine in it, and its clock does not wait for those of
	// memberlist that were waiting for an answer.
	t.Cleanup(func() { time.Sleep(20 * time.Second) })
	return &air{ports: map[string]*airPort{}, dials: map[string]int{}}
}

func (a *air) port(at string) *airPort {
	p := &airPort{
		air: a, at: netip.MustParseAddrPort(at), packets: make(chan *memberlist.Packet, 256),
		streams: make(chan net.Conn), done: make(chan struct{}),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ports[at] = p
	return p
}

// way finds who has an address, if it can be reached from another.
func (a *air) way(from, to string, packet bool) *airPort {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cut != nil && a.cut(from, to) || packet && a.loss != nil && a.loss(from, to) {
		return nil
	}
	return a.ports[to]
}

func (a *air) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (p *airPort) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.at.Addr().AsSlice(), int(p.at.Port()), nil
}

func (p *airPort) WriteTo(b []byte, to string) (time.Time, error) {
	if other := p.air.way(p.at.String(), to, true); other != nil && !p.ended() {
		select {
		case other.packets <- &memberlist.Packet{
			Buf: slices.Clone(b), From: net.UDPAddrFromAddrPort(p.at), Timestamp: time.Now(),
		}:
		default:
		}
	}
	return time.Now(), nil
}

func (p *airPort) PacketCh() <-chan *memberlist.Packet { return p.packets }
func (p *airPort) StreamCh() <-chan net.Conn           { return p.streams }

func (p *airPort) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	late := time.After(timeout)
	p.air.set(func() { p.air.dials[p.at.String()]++ })
	if p.ended() {
		return nil, net.ErrClosed
	}
	if other := p.air.way(p.at.String(), to, false); other != nil {
		near, far := net.Pipe()
		select {
		case other.streams <- far:
			return near, nil
		case <-other.done:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connection refused")}
		case <-late:
		}
	}
	<-late
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
}

func (p *airPort) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *airPort) Shutdown() error {
	p.once.Do(func() {
		close(p.done)
		p.air.mu.Lock()
		defer p.air.mu.Unlock()
		if p.air.ports[p.at.String()] == p {
			delete(p.air.ports, p.at.String())
		}
	})
	return nil
}

// on gives a node an address in the air.
func on(a *air, at string) func(*Options) {
	return func(o *Options) {
		o.Transport = a.port(at)
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
}

func airAddress(number int) string { return fmt.Sprintf("10.0.0.%d:7951", number) }

// In a cut that lasts, memberlist gives up the other side for good. Only members that are
// remembered, or listed, bring the sides together again.
func TestLongCutHeals(t *testing.T) {
	for _, test := range []struct {
		name string
		cut  time.Duration
		list func(number int) []string // the join list of a node
	}{
		{"lost members are remembered", 90 * time.Second, func(number int) []string {
			if number == 1 {
				return nil
			}
			return []string{airAddress(number - 1)} // nobody but 4 lists one of the other side
		}},
		{"all list the first", 20 * time.Minute, func(int) []string { return []string{"10.0.0.1"} }},
		{"hours later", 2 * time.Hour, func(number int) []string {
			if number == 1 {
				return nil
			}
			return []string{airAddress(1 + 3*((number-1)/3))} // its side's first
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAir(t)
				var nodes []*node
				for i := 1; i <= 6; i++ {
					join := test.list(i)
					if i == 4 && test.name == "hours later" {
						join = []string{airAddress(1)}
					}
					nodes = append(nodes, open(t, i, on(a, airAddress(i)), func(o *Options) { o.Join = join }))
				}
				all := func(state string) bool {
					for _, n := range nodes {
						if strings.Count(n.states(), state) != 6 {
							return false
						}
					}
					return true
				}
				within(t, "all are there", 2*time.Minute, func() bool { return all(":alive") })
				a.set(func() {
					a.cut = func(from, to string) bool { return from < "10.0.0.4" != (to < "10.0.0.4") }
				})
				time.Sleep(test.cut)
				if got := nodes[0].states(); test.cut < 10*time.Minute && got != "n1:alive n2:alive n3:alive n4:dead n5:dead n6:dead" ||
					test.cut > 10*time.Minute && got != "n1:alive n2:alive n3:alive" {
					t.Errorf("during the cut: %s", got)
				}
				a.set(func() { a.cut = nil })
				took := within(t, "all are there again", 2*time.Minute, func() bool { return all(":alive") })
				t.Logf("healed in %v", took)
				for _, n := range nodes {
					if problems := n.Status().Problems; len(problems) > 0 {
						t.Errorf("%s has problems: %q", n.Self().Name, problems)
					}
				}
			})
		})
	}
}

// within waits until a condition holds, in the time of a bubble.
func within(t *testing.T, what string, limit time.Duration, condition func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !condition() {
		if time.Since(began) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(250 * time.Millisecond)
	}
	return time.Since(began)
}
