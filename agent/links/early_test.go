package links_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/internal/testneeds"
)

// logged is a log that a test reads while it is written.
type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// Many interfaces are observed at once, before each has its turn to be attached to. When the watcher stops, it detaches from one after another and
// goes on to tell what changes; nothing is left and nothing is wrong.
func TestManyAreObservedEarly(t *testing.T) {
	testneeds.Root(t)
	modes := []bpf.Mode{bpf.TC}
	if mode, err := bpf.ResolveMode(bpf.Auto); err == nil && mode == bpf.TCX {
		modes = append(modes, bpf.TCX)
	}
	for _, mode := range modes {
		for _, count := range []int{3, 20} {
			t.Run(fmt.Sprint(mode, count), func(t *testing.T) { observeMany(t, mode, count) })
		}
	}
}

func observeMany(t *testing.T, mode bpf.Mode, count int) {
	observer, err := bpf.Load(bpf.Options{Mode: mode})
	must(t, err)
	pod := manyVeths(t, count)
	stop, log := make(chan struct{}), new(logged)
	w, ended, wait := watchUntil(t, stop, links.Options{Observer: observer, Log: slog.New(slog.NewTextHandler(log, nil))})
	isAttached := make(map[string]bool)
	follow := func(e links.Event) bool {
		if (e.Kind == links.Added || e.Kind == links.Changed) && strings.HasPrefix(e.Interface.Name, "old") {
			isAttached[e.Interface.Name] = e.Interface.State == links.Attached
		}
		n := 0
		for _, attached := range isAttached {
			if attached {
				n++
			}
		}
		return n == count
	}
	// programs is on how many of the interfaces there is one.
	programs := func() (n int) {
		for name := range isAttached {
			old, err := netlink.LinkByName(name)
			must(t, err)
			if mode == bpf.TC {
				filters, err := netlink.FilterList(old, netlink.HANDLE_MIN_INGRESS)
				must(t, err)
				n += len(filters)
				continue
			}
			chain, err := link.QueryPrograms(link.QueryOptions{Target: old.Attrs().Index, Attach: ebpf.AttachTCXIngress})
			must(t, err)
			n += len(chain.Programs)
		}
		return n
	}
	wait("all are observed", follow)
	if n := programs(); count > 8 && n > count/2 {
		t.Errorf("%d of %d interfaces have a program already when all are observed", n, count)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(eventTimeout); !done(); {
			select {
			case e := <-w.Events():
				follow(e)
			case <-time.After(10 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d interfaces have a program: not %s", programs(), count, what)
			}
		}
	}
	until("all", func() bool { return programs() == count })
	until("without the socket on all devices", func() bool {
		sockets, err := os.ReadFile("/proc/thread-self/net/packet")
		must(t, err)
		return bytes.Count(sockets, []byte("\n")) == 1 // the heading
	})

	close(stop)
	if count > 8 {
		inPod(t, pod, func() error {
			address, err := netlink.ParseAddr("10.1.1.77/32")
			must(t, err)
			peer, err := netlink.LinkByName("old3")
			must(t, err)
			return netlink.AddrAdd(peer, address)
		})
		wait("a new address meanwhile", holds(links.Changed, "old3", "10.1.1.77"))
	}
	for running := true; running; {
		select {
		case <-w.Events():
		case <-ended:
			running = false
		}
	}
	if n := programs(); n > 0 {
		t.Errorf("%d programs are left", n)
	}
	if text := log.text(); strings.Contains(text, "WARN") || strings.Contains(text, "ERROR") {
		t.Errorf("the log:\n%s", text)
	}
}

// A watcher stops, also if it could not subscribe to the kernel's events.
func TestStopWithoutSession(t *testing.T) {
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	t.Cleanup(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	stop, log := make(chan struct{}), new(logged)
	_, ended, _ := watchUntil(t, stop, links.Options{Log: slog.New(slog.NewTextHandler(log, nil))}, func(*links.Watcher) {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max})) // no socket can be opened
	})
	for deadline := time.Now().Add(eventTimeout); !strings.Contains(log.text(), "subscription failed"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no subscription has failed:\n%s", log.text())
		}
	}
	close(stop)
	select {
	case <-ended:
	case <-time.After(eventTimeout):
		t.Error("it has not ended")
	}
}
