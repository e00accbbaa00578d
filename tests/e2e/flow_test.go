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
	// detached are the numbers from and until which an XDP program was detached.
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

// mostInRing is how many of a flow's datagrams, of which there is one in a millisecond, may wait in the queue of a veth.
const mostInRing = 5

// detachXDP notes that an XDP program is detached from here on, until the function that it returns is called. The kernel frees what
// waits in the queue of a veth then (veth_napi_del_range, drivers/net/veth.c), whoever detaches.
func (f *flow) detachXDP() (end func()) {
	from := f.sent.Load()
	return func() { f.detached = append(f.detached, [2]uint64{from - min(from, mostInRing), f.sent.Load()}) }
}

// check ends the flow and fails the test unless every datagram arrived, once, but for those that detachXDP tells of.
func (f *flow) check(t *lab.T) (sent uint64) {
	t.Helper()
	sent, lost, doubled, err := f.count()
	freed := func(number uint64) bool {
		return slices.ContainsFunc(f.detached, func(d [2]uint64) bool { return d[0] <= number && number <= d[1] })
	}
	if others := slices.DeleteFunc(slices.Clone(lost), freed); len(lost)-len(others) <= mostInRing*len(f.detached) {
		lost = others
	}
	if len(lost)+len(doubled) > 0 || err != nil {
		t.Errorf("%s: of %d datagrams %d were lost %v, %d came twice %v; sending: %v",
			f.name, sent, len(lost), first(lost, 10), len(doubled), first(doubled, 10), err)
	}
	return sent
}

func first[T any](list []T, n int) []T { return list[:min(n, len(list))] }

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
