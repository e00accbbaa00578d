package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

const (
	// flowPause is the time between two datagrams of a flow.
	flowPause = time.Millisecond
	// flowBuffer holds a second of everything many times over, so that a receiver that
	// does not get the processor loses nothing.
	flowBuffer = 8 << 20
)

// flow is a stream of numbered datagrams from one pod to another.
type flow struct {
	name     string
	src      netip.Addr
	sender   *net.UDPConn
	receiver *net.UDPConn
	stop     chan struct{}
	sending  sync.WaitGroup
	reading  sync.WaitGroup
	sent     atomic.Uint64
	err      error
	// detached has the first and the last number that were sent while an XDP program was detached, for each time.
	detached [][2]uint64

	mu       sync.Mutex
	received map[uint64]int
}

// startFlow resolves the neighbours and then begins to send.
func startFlow(t *lab.T, from, to *lab.Pod, src, dst netip.Addr) *flow {
	t.Helper()
	t.Do(from.Ping(dst), to.Ping(src))
	f := &flow{
		name:     fmt.Sprintf("%s to %s, %v to %v", from.ShortName(), to.ShortName(), src, dst),
		src:      src,
		stop:     make(chan struct{}),
		received: make(map[uint64]int),
	}
	const port = 4711
	var err error
	f.receiver, err = to.ListenUDP(netip.AddrPortFrom(dst, port))
	t.Do(err)
	f.sender, err = from.DialUDP(src, netip.AddrPortFrom(dst, port))
	t.Do(err)
	raw, err := f.receiver.SyscallConn()
	t.Do(err)
	var optErr error
	t.Do(raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, flowBuffer)
	}), optErr)
	f.reading.Go(f.receive)
	f.sending.Go(f.send)
	t.Cleanup(func() { f.end() })
	return f
}

func (f *flow) send() {
	ticker := time.NewTicker(flowPause)
	defer ticker.Stop()
	var packet [64]byte
	for {
		select {
		case <-f.stop:
			return
		case <-ticker.C:
		}
		number := f.sent.Load()
		binary.BigEndian.PutUint64(packet[:], number)
		if _, err := f.sender.Write(packet[:]); err != nil {
			f.mu.Lock()
			f.err = errors.Join(f.err, fmt.Errorf("number %d: %w", number, err))
			f.mu.Unlock()
		}
		f.sent.Add(1)
	}
}

func (f *flow) receive() {
	var packet [2048]byte
	for {
		n, err := f.receiver.Read(packet[:])
		if err != nil {
			return
		}
		if n >= 8 {
			f.mu.Lock()
			f.received[binary.BigEndian.Uint64(packet[:])]++
			f.mu.Unlock()
		}
	}
}

// end stops sending, waits a moment for what is still under way, and closes the
// sockets. It may be called more than once.
func (f *flow) end() {
	select {
	case <-f.stop:
		return
	default:
	}
	close(f.stop)
	f.sending.Wait()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		all := uint64(len(f.received)) >= f.sent.Load()
		f.mu.Unlock()
		if all {
			break
		}
	}
	_ = f.sender.Close()
	_ = f.receiver.SetReadDeadline(time.Now())
	f.reading.Wait()
	_ = f.receiver.Close()
}

// count ends the flow and returns the numbers that did not arrive and those that arrived twice.
func (f *flow) count() (sent uint64, lost, doubled []uint64, err error) {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	sent = f.sent.Load()
	for number := range sent {
		switch n := f.received[number]; {
		case n == 0:
			lost = append(lost, number)
		case n > 1:
			doubled = append(doubled, number)
		}
	}
	return sent, lost, doubled, f.err
}

// mostInQueue is how many datagrams of a flow, which sends one in a millisecond, may wait in the queue of a veth.
const mostInQueue = 5

// detachXDP is called before an XDP program is detached, and end afterwards. When the kernel detaches such a program from a veth, it
// frees the packets that wait in the queue of the veth (veth_napi_del_range, drivers/net/veth.c).
func (f *flow) detachXDP() (end func()) {
	first := f.sent.Load()
	return func() { f.detached = append(f.detached, [2]uint64{first - min(first, mostInQueue), f.sent.Load()}) }
}

// unexplained returns the lost numbers but those that the kernel may have freed when an XDP program was detached.
func (f *flow) unexplained(lost []uint64) []uint64 {
	for _, d := range f.detached {
		others := slices.DeleteFunc(slices.Clone(lost), func(number uint64) bool { return d[0] <= number && number <= d[1] })
		if len(lost)-len(others) <= mostInQueue {
			lost = others
		}
	}
	return lost
}

// check ends the flow and fails the test unless every datagram arrived, once, except the few that detachXDP explains.
func (f *flow) check(t *lab.T) (sent uint64) {
	t.Helper()
	sent, lost, doubled, err := f.count()
	lost = f.unexplained(lost)
	if len(lost)+len(doubled) > 0 || err != nil {
		t.Errorf("%s: of %d datagrams %d were lost %v, %d came twice %v; sending: %v",
			f.name, sent, len(lost), first(lost, 10), len(doubled), first(doubled, 10), err)
	}
	return sent
}

func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }

// At each time that XDP was detached a few datagrams may be lost, and no others.
func TestFlowExplains(t *testing.T) {
	f := &flow{detached: [][2]uint64{{100, 200}, {300, 400}}}
	for _, tt := range []struct{ lost, want []uint64 }{
		{nil, nil},
		{[]uint64{100, 200, 300, 301, 302, 303, 400}, nil},
		{[]uint64{99, 150, 201, 250}, []uint64{99, 201, 250}},
		{[]uint64{150, 300, 301, 302, 303, 304, 305}, []uint64{300, 301, 302, 303, 304, 305}},
	} {
		if got := f.unexplained(tt.lost); !slices.Equal(got, tt.want) {
			t.Errorf("of %v unexplained are %v, want %v", tt.lost, got, tt.want)
		}
	}
}

// The measure itself: a flow notices what was lost and what came twice.
func TestFlowCounts(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Pod(n, "a", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	b := l.Pod(n, "b", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
	f := startFlow(l, a, b, n.IPv4(5), n.IPv4(6))
	f.waitSent(l, 20)
	var packet [64]byte // number 0
	if _, err := f.sender.Write(packet[:]); err != nil {
		t.Fatal(err)
	}
	f.waitSent(l, 20)
	l.Do(b.SetDown())
	f.waitSent(l, 20)
	_, lost, doubled, err := f.count()
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) == 0 {
		t.Error("nothing was lost through an interface that was down")
	}
	if len(doubled) != 1 || doubled[0] != 0 {
		t.Errorf("doubled: got %v, want [0]", doubled)
	}
}

// waitSent waits until the flow has sent this many more datagrams.
func (f *flow) waitSent(t *lab.T, more uint64) {
	t.Helper()
	until := f.sent.Load() + more
	t.Eventually(f.name, func() error {
		if sent := f.sent.Load(); sent < until {
			return fmt.Errorf("sent %d, want %d", sent, until)
		}
		return nil
	})
}
