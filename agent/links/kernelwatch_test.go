package links

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
)

// received counts what a kernelWatch reports.
type received struct {
	mu      sync.Mutex
	changed map[int]int // by netns id
	lost    int
	hold    chan struct{} // while open, a change does not return
}

// startWatch runs a kernelWatch until the test ends.
func startWatch(t *testing.T, buffer int) *received {
	t.Helper()
	h := &received{changed: make(map[int]int)}
	w, err := watchAddresses(buffer, func(request any) {
		h.mu.Lock()
		var hold chan struct{}
		switch request := request.(type) {
		case scanNetns:
			h.changed[int(request)]++
			hold = h.hold
		case scanEverything:
			h.lost++
		}
		h.mu.Unlock()
		if hold != nil {
			<-hold
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// wait polls until ok, which is called with the lock held.
func (h *received) wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		done := ok()
		h.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing after a minute: %s", what)
		}
	}
}

// counts returns how often that netns was reported, and how often everything was.
func (h *received) counts(nsid int) (changed, lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed[nsid], h.lost
}

// podWithID makes a netns that has an id in ours, and returns how to change its addresses.
func podWithID(t testing.TB, name string) (nsid int, change func(times int)) {
	t.Helper()
	return podWithAddress(t, name, "198.18.0.1/32", netlink.SCOPE_UNIVERSE)
}

// podWithAddress makes a netns like podWithID. change adds and removes this address.
func podWithAddress(t testing.TB, name, text string, scope netlink.Scope) (nsid int, change func(times int)) {
	t.Helper()
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	file := pod.Open(t)
	address, err := netlink.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	address.Scope = int(scope)
	return link.Attrs().NetNsID, func(times int) {
		t.Helper()
		if err := netns.Do(file, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			for range times {
				if err := netlink.AddrAdd(lo, address); err != nil {
					return err
				}
				if err := netlink.AddrDel(lo, address); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAddressWatchDistinguishesNamespaces(t *testing.T) {
	first, changeFirst := podWithID(t, "pod1")
	second, changeSecond := podWithID(t, "pod2")
	h := startWatch(t, watchBuffer)
	changeFirst(1)
	h.wait(t, "the first", func() bool { return h.changed[first] > 0 })
	if changed, _ := h.counts(second); changed > 0 {
		t.Errorf("a change of netns %d is reported, which did not change", second)
	}
	changeSecond(1)
	h.wait(t, "the second", func() bool { return h.changed[second] > 0 })
	dummy := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(198, 18, 0, 2))}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(lo, dummy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.AddrDel(lo, dummy) })
	h.wait(t, "our own", func() bool { return h.changed[ownNetns] > 0 })
	if _, lost := h.counts(first); lost > 0 {
		t.Error("events were lost")
	}
}

// A flood of changes leads to a few calls.
func TestAddressFloodIsMerged(t *testing.T) {
	nsid, change := podWithID(t, "pod1")
	h := startWatch(t, watchBuffer)
	const changes = 5000
	began := time.Now()
	change(changes)
	took := time.Since(began)
	h.wait(t, "the flood", func() bool { return h.changed[nsid] > 0 })
	calls, _ := h.counts(nsid)
	if most := wakeBurst + int(took.Seconds()*wakeRate) + 10; calls > most {
		t.Errorf("%d calls for %d changes within %v, want at most %d", calls, 2*changes, took, most)
	}
}

// After an overrun a loss is reported once the buffer is empty, and later events are received.
func TestAddressOverrun(t *testing.T) {
	nsid, change := podWithID(t, "pod1")
	h := startWatch(t, 4096)
	overrun := func() {
		t.Helper()
		hold := make(chan struct{})
		h.mu.Lock()
		before := h.changed[nsid]
		h.hold = hold
		h.mu.Unlock()
		change(1)
		h.wait(t, "an event", func() bool { return h.changed[nsid] > before })
		change(200) // without a reader
		h.mu.Lock()
		h.hold = nil
		h.mu.Unlock()
		close(hold)
	}
	for round := range 3 {
		overrun()
		h.wait(t, "the loss", func() bool { return h.lost > round })
	}
	before, losses := h.counts(nsid)
	change(1)
	h.wait(t, "a change after the overruns", func() bool { return h.changed[nsid] > before })
	if _, lost := h.counts(nsid); lost != losses || lost != 3 {
		t.Errorf("%d losses, %d of them before one more change, want 3", lost, losses)
	}
}

// BenchmarkAddressEvents reads what a pod that changes its addresses all the time has caused.
func BenchmarkAddressEvents(b *testing.B) {
	_, change := podWithID(b, "pod1")
	w, err := watchAddresses(watchBuffer, func(any) {})
	if err != nil {
		b.Fatal(err)
	}
	defer w.conn.Close()
	raw, err := w.conn.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	const events = 4000
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		change(events / 2)
		b.StartTimer()
		if err := raw.Read(func(fd uintptr) bool {
			_, err = w.read(fd)
			return true
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
}

// The kernel gives each device a link-local address, and reports it again when it becomes valid. Neither
// event is reported. Events of other addresses are reported, for any scope.
func TestLinkLocalAddressesAreNotReported(t *testing.T) {
	for _, test := range []struct {
		address  string
		scope    netlink.Scope
		reported bool
	}{
		{"fe80::5/64", netlink.SCOPE_LINK, false},
		{"fd00::5/64", netlink.SCOPE_UNIVERSE, true},
		{"198.18.0.5/32", netlink.SCOPE_LINK, true},
	} {
		t.Run(test.address, func(t *testing.T) {
			first, changeFirst := podWithAddress(t, "pod1", test.address, test.scope)
			second, changeSecond := podWithID(t, "pod2")
			h := startWatch(t, watchBuffer)
			changeFirst(10)
			changeSecond(1) // events come in order
			h.wait(t, "the second", func() bool { return h.changed[second] > 0 })
			if changed, _ := h.counts(first); changed > 0 != test.reported {
				t.Errorf("reported: %t, want %t", changed > 0, test.reported)
			}
		})
	}
}
