package probe

import (
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// start is when each test begins. A prober has no clock of its own, and a machine may pause for longer than a test waits.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// source is what the sources of all probes begin with.
var source = [3]byte{2, 0xd0, 1}

// harness is a Prober with fakes for its options.
type harness struct {
	*Prober
	now        time.Time // when pods are added
	targets    []Target
	fails      error
	held       map[detector.Key]bool
	suppressed map[detector.Key]time.Time
	off        map[string]bool // networks without probes
	rescans    []uint32
}

func (w *harness) Send(target Target) error {
	if w.fails == nil {
		w.targets = append(w.targets, target)
	}
	return w.fails
}

func (w *harness) Holds(key detector.Key, _ detector.HolderID) bool { return w.held[key] }

func (w *harness) SuppressedUntil(key detector.Key, _ detector.HolderID) time.Time {
	return w.suppressed[key]
}

func newHarness() *harness {
	w := &harness{now: start, held: make(map[detector.Key]bool), suppressed: make(map[detector.Key]time.Time), off: make(map[string]bool)}
	w.Prober = New(Options{
		Log: slog.New(slog.DiscardHandler), Sender: w, Bindings: w, Source: source, Budget: NewBudget(500, 100),
		Solicits: func(network string) bool { return !w.off[network] },
		Rescan:   func(generation uint32) { w.rescans = append(w.rescans, generation) },
	})
	return w
}

func key(ip string) detector.Key {
	return detector.Key{Network: "default", IP: netip.MustParseAddr(ip)}
}

// each is a list of untagged addresses as the prober takes it.
func each(keys ...detector.Key) func(func(detector.Key, bpf.VLAN) bool) {
	return func(yield func(detector.Key, bpf.VLAN) bool) {
		for _, k := range keys {
			if !yield(k, bpf.VLAN{}) {
				return
			}
		}
	}
}

// pod adds an interface whose netns exists.
func (w *harness) pod(t *testing.T, index int, change func(*links.Interface), configured ...string) detector.Interface {
	t.Helper()
	info, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	link := &links.Interface{
		Name: "veth", Index: index, Generation: uint32(index), State: links.Attached, Up: true, Seen: true,
		Netns: netns.Ref{Path: "/proc/self/ns/net", Inode: info.Sys().(*syscall.Stat_t).Ino},
		View:  netns.View{Peer: books.DefaultInterface, Cookie: uint64(index), Taken: w.now},
	}
	var keys []detector.Key
	for _, ip := range configured {
		keys = append(keys, key(ip))
		link.View.Addresses = append(link.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
	}
	if change != nil {
		change(link)
	}
	i := Interface{Ref: detector.Interface{Ifindex: uint32(index), Generation: uint32(index)}, Holder: detector.HolderID{Node: "n/", Netns: uint64(index)}, Link: link}
	w.Follow(i)
	w.Expect(i.Ref, each(keys...), each(), w.now)
	return i.Ref
}

// verify is a probe that the detector requests.
func verify(ref detector.Interface, ip string) detector.Probe {
	return detector.Probe{
		Key: key(ip), Holder: detector.HolderID{Node: "n/", Netns: uint64(ref.Ifindex)}, Interface: ref, Purpose: detector.Verify,
	}
}

func TestProbe(t *testing.T) {
	gone := netns.Ref{Path: filepath.Join(t.TempDir(), "gone"), Inode: 1}
	now := start
	for _, test := range []struct {
		name   string
		change func(*links.Interface)
		before func(w *harness, ref detector.Interface)
		want   string
		again  time.Duration // when to try again, 0: not
	}{
		{name: "sent"},
		{name: "down", before: func(w *harness, _ detector.Interface) { w.fails = unix.ENETDOWN }},
		{name: "no buffers", before: func(w *harness, _ detector.Interface) { w.fails = unix.ENOBUFS }, want: unix.ENOBUFS.Error(), again: time.Second},
		{name: "no such interface", before: func(w *harness, ref detector.Interface) { w.Forget(ref) }, want: "the interface is gone"},
		{name: "switched off", before: func(w *harness, _ detector.Interface) { w.off["default"] = true }, want: "solicitation is off in network default"},
		{name: "over the budget", before: func(w *harness, _ detector.Interface) { w.Budget = NewBudget(0, 0) }, want: "the node's rate limit", again: 100 * time.Millisecond},
		{
			name: "its kernel detects duplicates", change: func(l *links.Interface) { l.View.Addresses[0].Valid = false },
			want: "duplicate address detection runs in the pod", again: time.Second,
		},
		{
			name: "its kernel has lost the address", change: func(l *links.Interface) { l.View.Addresses[0].Valid, l.View.Addresses[0].Lost = false, true },
			want: "duplicate address detection failed in the pod", again: time.Second,
		},
		{
			name: "it probes the address itself", change: func(l *links.Interface) { l.View.Addresses = nil },
			before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now)
			},
			want: "the pod is probing the address itself", again: tentativeFor,
		},
		{
			name: "what it announced before it probes the address came late", change: func(l *links.Interface) { l.View.Addresses = nil },
			before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now)
				w.Observed(ref, bpf.VLAN{}, announced("10.0.0.1", now.Add(-time.Millisecond)), [6]byte{})
			},
			want: "the pod is probing the address itself", again: tentativeFor,
		},
		{
			name: "it announces the address that it probed", change: func(l *links.Interface) { l.View.Addresses = nil },
			before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now)
				w.Observed(ref, bpf.VLAN{}, announced("10.0.0.1", now.Add(time.Millisecond)), [6]byte{})
			},
		},
		{
			name: "it probed the address long ago", change: func(l *links.Interface) { l.View.Addresses = nil },
			before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now.Add(-tentativeFor))
			},
		},
		{
			name: "it probes an address that it has", before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now.Add(time.Minute))
			},
		},
		{
			name: "it probes an address that it has on lo", change: func(l *links.Interface) { l.View.Addresses[0].Where = netns.OnLoopback },
			before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now.Add(time.Minute))
			},
		},
		{
			name: "it probes an address that it has by a local route", change: func(l *links.Interface) {
				l.View.Addresses = nil
				l.View.LocalRoutes = []netns.LocalRoute{{Prefix: netip.MustParsePrefix("10.0.0.1/32"), Where: netns.OnLoopback}}
			},
			before: func(w *harness, ref detector.Interface) {
				w.Tentative(ref, netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}, now.Add(time.Minute))
			},
		},
		{
			name: "its netns is about to go", change: func(l *links.Interface) { l.Netns = gone },
			want: "its netns has neither a name nor a process any more", again: 200 * time.Millisecond,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newHarness()
			ref := w.pod(t, 2, test.change, "10.0.0.1")
			if test.before != nil {
				test.before(w, ref)
			}
			r := w.Probe(verify(ref, "10.0.0.1"), bpf.VLAN{}, false, now)
			again := time.Duration(0)
			if !r.Until.IsZero() {
				again = r.Until.Sub(now)
			}
			if r.Reason != test.want && (test.want != unix.ENOBUFS.Error() || r.Reason == "") || again != test.again {
				t.Fatalf("refused %+v, again after %v; want %q and %v", r, again, test.want, test.again)
			}
			sent := r == detector.ProbeRefusal{} && w.fails == nil
			if sent != (len(w.targets) == 1) || sent != (w.Sent()[detector.Verify] == 1) {
				t.Errorf("sent %v, counted %v", w.targets, w.Sent())
			}
			if sent {
				if id, at, ours := w.Asked(w.targets[0].Source); id != (detector.HolderID{Node: "n/", Netns: 2}) || !at.Equal(now) || !ours {
					t.Errorf("asked %v at %v, ours: %v", id, at, ours)
				}
			}
		})
	}
}

// announced is the sighting of an announcement.
func announced(ip string, at time.Time) *detector.Sighting {
	return &detector.Sighting{Key: detector.Key{Network: "default", IP: netip.MustParseAddr(ip)}, Evidence: detector.Announced, At: at}
}

// TestLostNetns: a netns without references is not verified for a while.
func TestLostNetns(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, nil, "10.0.0.1")
	i := w.interfaces[ref].Interface
	now := start
	i.Lost = now
	w.Follow(i)
	if r := w.Probe(verify(ref, "10.0.0.1"), bpf.VLAN{}, false, now); !r.Until.Equal(now.Add(lostFor)) {
		t.Errorf("refused %+v, want until %v later", r, lostFor)
	}
	if r := w.Probe(verify(ref, "10.0.0.1"), bpf.VLAN{}, false, now.Add(lostFor)); r != (detector.ProbeRefusal{}) {
		t.Errorf("later refused %+v", r)
	}
}

func TestBudget(t *testing.T) {
	now := start
	count := func(b *Budget, purpose detector.Purpose, forOther bool) (n int) {
		for b.Allow(purpose, forOther, now) {
			n++
		}
		return n
	}
	b := NewBudget(40, 10)
	if n := count(b, detector.Refresh, false); n != 10 {
		t.Errorf("%d refreshes, want 10", n)
	}
	if n := count(b, detector.Verify, true); n != 31 {
		t.Errorf("%d probes for other nodes, want 31: a quarter is this node's own", n)
	}
	if n := count(b, detector.Verify, false); n != 9 {
		t.Errorf("%d probes besides, want 9", n)
	}
}

// A pod with many addresses gets as many probes as the observer records answers of one interface. It leaves the
// rest of the budget to other pods.
func TestInterfaceLimit(t *testing.T) {
	w := newHarness()
	w.Budget = NewBudget(1000, 1000)
	many, other := w.pod(t, 2, nil), w.pod(t, 3, nil, "10.1.0.1")
	now := start
	probe := func(purpose detector.Purpose, now time.Time) (sent int) {
		for n := range 1000 {
			s := verify(many, netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}).String())
			s.Purpose = purpose
			switch r := w.Probe(s, bpf.VLAN{}, n%2 == 0, now); {
			case r == detector.ProbeRefusal{}:
				sent++
			case r.Reason != "the interface's rate limit" || r.Budget || !r.Until.After(now):
				t.Fatalf("refused %+v", r)
			}
		}
		return sent
	}
	if n := probe(detector.Verify, now); n != interfaceBurst {
		t.Errorf("%d probes at once, want %d", n, interfaceBurst)
	}
	if n := w.Dropped()[DroppedRate]; n != 1000-interfaceBurst {
		t.Errorf("%d are counted as delayed", n)
	}
	if r := w.Probe(verify(other, "10.1.0.1"), bpf.VLAN{}, false, now); r != (detector.ProbeRefusal{}) {
		t.Errorf("another pod: refused %+v", r)
	}
	if n := probe(detector.Verify, now.Add(time.Second)); n != interfaceRate {
		t.Errorf("%d probes a second later, want %d", n, interfaceRate)
	}
	if n := probe(detector.Refresh, now.Add(1500*time.Millisecond)); n != interfaceRate/2 {
		t.Errorf("%d refreshes half a second later, want %d: their answers count as well", n, interfaceRate/2)
	}
}

// TestTentativeIsBounded: a pod may probe any number of addresses.
func TestTentativeIsBounded(t *testing.T) {
	w := newHarness()
	ref := w.pod(t, 2, nil)
	now := start
	ip := netip.MustParseAddr("10.0.0.1")
	for range 3 * maxTentative {
		w.Tentative(ref, ip, bpf.VLAN{}, now)
		ip = ip.Next()
	}
	if n := len(w.interfaces[ref].tentative); n != maxTentative || w.Dropped()[droppedTentative] != 2*maxTentative {
		t.Errorf("%d are remembered, want %d", n, maxTentative)
	}
	w.Tentative(ref, ip, bpf.VLAN{}, now.Add(time.Minute))
	if n := len(w.interfaces[ref].tentative); n != 1 {
		t.Errorf("later %d are remembered, want 1", n)
	}
}

// pendingOf returns the pending probes of an interface.
func (w *harness) pendingOf(ref detector.Interface) map[address]*pending {
	return maps.Clone(w.interfaces[ref].pending)
}

// Where nothing answers, nothing is sent: the kernel of the pod is scanned, by the same rules and limits. If that must not
// count, or the netns cannot be found, nothing is probed, and the reason is said.
func TestMute(t *testing.T) {
	now := start
	for _, test := range []struct {
		name   string
		scan   bool
		change func(*links.Interface)
		want   string
	}{
		{name: "scanned", scan: true},
		{name: "off", want: "nothing answers on netkit devices in L3 mode, and --configured-evidence is off"},
		{
			name: "not found", scan: true, change: func(l *links.Interface) { l.Seen = false },
			want: "nothing answers on netkit devices in L3 mode, and its netns cannot be found",
		},
		{
			name: "guarded", scan: true, change: func(l *links.Interface) { l.View.Addresses[0].Valid = false },
			want: "duplicate address detection runs in the pod",
		},
		{
			name: "too long a list", scan: true, change: func(l *links.Interface) { l.View.Truncated, l.View.Addresses = true, nil },
			want: "its kernel has more addresses than are listed",
		},
	} {
		w := newHarness()
		var scanned []netip.Addr
		if test.scan {
			w.ScanFor = func(_ detector.Interface, ip netip.Addr, _ bpf.VLAN, _ time.Time) { scanned = append(scanned, ip) }
		}
		ref := w.pod(t, 2, func(l *links.Interface) {
			l.L3 = true
			if test.change != nil {
				test.change(l)
			}
		}, "10.0.0.1")
		if r := w.Probe(verify(ref, "10.0.0.1"), bpf.VLAN{}, false, now); r.Reason != test.want {
			t.Errorf("%s: refused %+v, want %q", test.name, r, test.want)
		}
		w.Run(now.Add(time.Second)) // the pending probe of what is configured
		want := 0
		switch test.name {
		case "scanned":
			want = 2
		case "too long a list":
			want = 1 // the list may be shorter by now
		}
		if len(w.targets) != 0 || len(scanned) != want || int(w.Sent()[detector.Verify]+w.Sent()[detector.Refresh]) != want {
			t.Errorf("%s: sent %v, scanned %v, counted %v", test.name, w.targets, scanned, w.Sent())
		}
		if pending := len(w.pendingOf(ref)); (pending > 0) != (want > 0 || test.name == "guarded") {
			t.Errorf("%s: %d probes are pending", test.name, pending)
		}
	}
}
