package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// probeCounter counts the probes that a loop sends.
type probeCounter int

func (s *probeCounter) Send(probe.Target) error {
	*s++
	return nil
}

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newLoop makes a loop without kernel and cluster that is not running; the test calls its methods.
func newLoop(t *testing.T, text string) (*loop, *probeCounter) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	resolver, err := pods.New(pods.Options{Log: log, Socket: "none"})
	if err != nil {
		t.Fatal(err)
	}
	store, _ := state.Open(state.Options{Log: log, Dir: t.TempDir(), Node: "n", BootID: "b"})
	l := &loop{
		log: log, detector: detector.New(detector.Options{Node: "n/b"}),
		pods: resolver, store: store,
		operations: make(chan func()), stopped: make(chan struct{}), detected: func(time.Duration) {}, ready: func() {},
		forgetting: forgetting{log: log, forget: func([]bpf.Address) error { return nil }},
		scanning:   make(scanning), host: hostProbes{list: links.ListHostAddresses},
	}
	probes := new(probeCounter)
	c := parsed(t, text)
	l.prober = probe.New(probe.Options{
		Log: log, Sender: probes, Bindings: l.detector, Rescan: func(uint32) {},
		Solicits: func(network string) bool { return l.table.Config().Solicits(network) },
	})
	l.table = observe.New(observe.Options{
		Log: log, Host: detector.HolderID{Node: "n/b", Netns: 1}, Probed: l.prober.SentTo, Bindings: l.detector.Bindings,
		Pod:       func(uint64) (pods.Change, bool) { return pods.Change{}, false },
		ByHostEnd: func(string) (pods.Change, bool) { return pods.Change{}, false },
		Leads:     func(*links.Interface, netip.Addr) bool { return false },
		Rescan:    func(uint32) {},
		Forget:    func(r bpf.Record) { l.forgetting.add(r.Address) },
		Counters:  func(int) (bpf.Counters, error) { return bpf.Counters{}, errors.New("not attached") },
	})
	l.exchange = exchange.New(exchange.Options{Node: "n/b", Detector: l.detector})
	l.report = report.New(report.Options{
		Log: log, Self: cluster.Member{Name: "n", Boot: "b"}, Do: l.do,
		Detector: l.detector, Table: l.table, Prober: l.prober, Exchange: l.exchange, Pods: l.pods, Books: audit.New(audit.Options{}),
	})
	t.Cleanup(func() { // for those who wait for it
		select {
		case <-l.stopped:
		default:
			close(l.stopped)
		}
	})
	l.configure(c, time.Now())
	return l, probes
}

// add adds a pod's eth0 as the watcher would.
func (l *loop) add(t *testing.T, index int, cookie uint64, ips ...string) *observe.Interface {
	t.Helper()
	info, err := os.Stat("/proc/self/ns/net") // always exists
	if err != nil {
		t.Fatal(err)
	}
	link := &links.Interface{
		Name: "veth", Index: index, Generation: uint32(index), Up: true, State: links.Attached, Seen: true,
		View:  netns.View{Cookie: cookie, Peer: books.DefaultInterface, Taken: time.Now()},
		Netns: netns.Ref{Path: "/proc/self/ns/net", Inode: info.Sys().(*syscall.Stat_t).Ino},
	}
	for _, ip := range ips {
		link.View.Addresses = append(link.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
	}
	l.update(links.Event{Kind: links.Added, Interface: link}, time.Now())
	l.turn()
	return l.table.Interface(detector.Interface{Ifindex: uint32(index), Generation: uint32(index)})
}

// scanned has an interface scanned so late that no packet waits for the next scan.
func (l *loop) scanned(i *observe.Interface, changes ...func(*netns.View)) *observe.Interface {
	next := *i.Interface
	next.View.Taken = time.Now().Add(time.Hour)
	for _, change := range changes {
		change(&next.View)
	}
	l.update(links.Event{Kind: links.Changed, Interface: &next}, time.Now())
	l.turn()
	return l.table.Interface(i.Ref)
}

// packet is a packet of a pod.
func (l *loop) packet(i *observe.Interface, kind bpf.Kind, ip string) {
	l.record(seen(i, kind, ip))
	l.turn()
}

// seen is the record of such a packet.
func seen(i *observe.Interface, kind bpf.Kind, ip string) bpf.Record {
	return bpf.Record{
		Address: bpf.Address{Ifindex: i.Ref.Ifindex, Generation: i.Ref.Generation, IP: netip.MustParseAddr(ip)},
		Time:    time.Since(observe.TimeOf(0)), Kind: kind, MAC: [6]byte{2},
	}
}

// pass lets time pass for the detector.
func (l *loop) pass(from time.Time, span, step time.Duration) {
	for now := from; now.Before(from.Add(span)); now = now.Add(step) {
		l.exchange.Tick(now)
		l.turn()
	}
}

var one = netip.MustParseAddr("10.0.0.1")

func (l *loop) unanswered(i *observe.Interface) int {
	return l.prober.Unanswered(i.Ref, one, bpf.VLAN{})
}

// TestRecordsComeFirst: a pod that probes its address before it uses it again is not probed, if its packet is there before what makes
// the agent suspect another holder has been followed.
func TestRecordsComeFirst(t *testing.T) {
	l, probes := newLoop(t, "")
	first, second := l.scanned(l.add(t, 2, 42)), l.scanned(l.add(t, 3, 43))
	l.packet(first, bpf.Announced, "10.0.0.1")
	records := make(chan bpf.Record, 2)
	ctx, cancel := context.WithCancel(t.Context())
	l.operations = make(chan func(), 1)
	l.operations <- func() {
		o, _ := l.table.Record(seen(second, bpf.Announced, "10.0.0.1"))
		l.observed(&o, time.Now())
		records <- seen(first, bpf.Announced, "10.0.0.2")
		records <- seen(first, bpf.Tentative, "10.0.0.1")
		go func() {
			defer cancel()
			_ = l.do(ctx, func() {}) // after what follows from it
		}()
	}
	if err := l.run(ctx, records, nil); err != nil {
		t.Fatal(err)
	}
	if open := l.detector.Conflicts(false); len(open) != 1 || *probes != 1 {
		t.Errorf("%d conflicts, %d probes; want one, and one for the other holder", len(open), *probes)
	}
}

// TestSilentPod: an address that a pod has configured is probed, and its answer makes the binding. After
// the binding has ended the address is probed again, unless it was removed.
func TestSilentPod(t *testing.T) {
	l, probes := newLoop(t, "")
	i := l.add(t, 2, 42, "10.0.0.1", "10.0.0.2")
	if *probes != 2 {
		t.Fatalf("%d probes, want one for each address", *probes)
	}
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		l.packet(i, bpf.Answer, ip)
	}
	if n := len(l.detector.Bindings(nil)); n != 2 || !l.prober.Next().IsZero() {
		t.Fatalf("%d bindings, the next probe at %v; want two and none", n, l.prober.Next())
	}
	l.pass(time.Now(), time.Hour, time.Second)
	if n := len(l.detector.Bindings(nil)); n != 0 {
		t.Fatalf("%d bindings an hour later", n)
	}
	if l.prober.Run(time.Now()); l.unanswered(i) != 1 {
		t.Error("an address whose binding has expired is not probed")
	}
	l.packet(i, bpf.Answer, "10.0.0.1")
	next := *i.Interface
	next.View.Addresses = next.View.Addresses[1:]
	l.update(links.Event{Kind: links.Changed, Interface: &next}, time.Now())
	l.turn()
	if l.prober.Run(time.Now()); l.unanswered(i) != 0 {
		t.Error("a removed address is probed")
	}
}

// TestSuppressedLonger: a pod that answers pending probes but no verification is suppressed longer each
// time.
func TestSuppressedLonger(t *testing.T) {
	l, _ := newLoop(t, "")
	i, honest := l.add(t, 2, 42, "10.0.0.1"), l.add(t, 3, 43, "10.0.0.1")
	key := detector.Key{Network: "default", IP: one}
	answers := func(who *observe.Interface, now time.Time) {
		l.exchange.Observe(detector.Sighting{
			Key: key, Holder: who.Describe([6]byte{2}), Evidence: detector.Announced, Answer: true, At: now,
		}, now)
	}
	now, last := time.Now(), time.Duration(0)
	for round := range 6 {
		answers(i, now)
		began := now
		for end := now.Add(10 * time.Second); now.Before(end) && (now.Equal(began) || l.detector.Holds(key, i.Holder)); now = now.Add(50 * time.Millisecond) {
			answers(honest, now)
			l.exchange.Tick(now)
			l.turn()
		}
		if l.detector.Holds(key, i.Holder) {
			t.Fatalf("round %d: it still holds the address", round)
		}
		until := l.detector.SuppressedUntil(key, i.Holder)
		wait := max(0, until.Sub(now))
		if round >= 3 && wait <= last {
			t.Errorf("round %d: it is suppressed for %v, after %v before", round, wait, last)
		}
		last = wait
	}
	if last < 10*time.Second {
		t.Fatalf("in the end it is suppressed for %v", last)
	}
	for n := range 20 { // announcements do not change when the probe is due
		l.packet(i, bpf.Announced, "10.0.0.1")
		if at := l.prober.Next(); at.Before(time.Now()) {
			t.Fatalf("announcement %d: the next probe is due at once", n)
		}
	}
}

// TestLimitsOfTheConfiguration take effect at the start and at a reload.
func TestLimitsOfTheConfiguration(t *testing.T) {
	l, _ := newLoop(t, "limits: {verifyPerSecond: 7, bindings: 1, bindingsPerInterface: 1}")
	allowed := func() (n int) {
		for now := time.Now().Add(time.Minute); l.prober.Budget.Allow(detector.Verify, false, now); n++ {
		}
		return n
	}
	if n := allowed(); n != 7 {
		t.Errorf("%d probes at once, want 7", n)
	}
	i := l.add(t, 2, 7, "10.0.0.5", "10.0.0.6")
	l.packet(i, bpf.Announced, "10.0.0.5")
	l.packet(i, bpf.Announced, "10.0.0.6")
	if n := len(l.detector.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings, want 1", n)
	}
	l.configure(parsed(t, ""), time.Now())
	l.packet(i, bpf.Announced, "10.0.0.6")
	if n := len(l.detector.Bindings(nil)); n != 2 {
		t.Errorf("%d bindings after the limit was lifted, want 2", n)
	}
	if n := allowed(); n < 990 || n > 1000 {
		t.Errorf("%d probes at once after the reload, want 1000", n)
	}
}

// TestReloadMovesBindings: a reload moves bindings in the detector's table and the pending probes.
func TestReloadMovesBindings(t *testing.T) {
	l, _ := newLoop(t, "")
	i := l.add(t, 2, 7, "10.0.0.1", "10.0.0.2")
	l.packet(i, bpf.Announced, "10.0.0.2")
	l.configure(parsed(t, "networks: [{name: storage, match: {peers: [eth0]}}]"), time.Now())
	l.turn()
	if b := l.detector.Bindings(nil); len(b) != 1 || b[0].Key.Network != "storage" || b[0].Key.IP.String() != "10.0.0.2" {
		t.Errorf("bindings %+v", b)
	}
	l.configure(parsed(t, "networks: [{name: storage, solicit: off, match: {peers: [eth0]}}]"), time.Now())
	if at := l.prober.Next(); !at.IsZero() {
		t.Errorf("a probe is pending at %v where they are switched off", at)
	}
}

// TestNames: a late name is added to the bindings.
func TestNames(t *testing.T) {
	l, _ := newLoop(t, "")
	i := l.add(t, 2, 7, "10.0.0.1")
	l.packet(i, bpf.Announced, "10.0.0.1")
	pod := detector.Pod{Namespace: "shop", Name: "web-1"}
	l.name(pods.Change{Cookie: 7, Pod: pod}, time.Now())
	if b := l.detector.Bindings(nil); len(b) != 1 || b[0].Holder.Pod != pod || l.saveAt.IsZero() {
		t.Errorf("bindings %+v, saved at %v", b, l.saveAt)
	}
}

// TestInterfacesFirst: what an interface has sent counts in the network where it is now, however much of both waits.
func TestInterfacesFirst(t *testing.T) {
	l, _ := newLoop(t, "networks: [{name: storage, match: {bridges: [br0]}}]")
	i := l.add(t, 2, 7, "10.0.0.1")
	events, records := make(chan links.Event, 20), make(chan bpf.Record, 1)
	for n := range cap(events) {
		link := *i.Interface
		if n == cap(events)-1 {
			link.Master = "br0"
		}
		events <- links.Event{Kind: links.Changed, Interface: &link}
	}
	records <- seen(i, bpf.Announced, "10.0.0.1")
	l.events = events
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx, records, nil) }()
	var networks []string
	for len(networks) == 0 && ctx.Err() == nil {
		if err := l.do(ctx, func() {
			if len(events)+len(records) > 0 {
				return
			}
			for _, story := range l.detector.Explain(one) {
				networks = append(networks, story.Key.Network)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(networks, []string{"storage"}) {
		t.Errorf("the address was in the networks %q", networks)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDo: do does not block if the loop has ended or the context is done.
func TestDo(t *testing.T) {
	l, _ := newLoop(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.do(ctx, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v with a done context", err)
	}
	close(l.stopped)
	if err := l.do(t.Context(), func() {}); !errors.Is(err, errStopped) {
		t.Errorf("error %v of a loop that has ended", err)
	}
}

// The runtime is asked again who the nameless holders of this node are, because it may have listed them since.
func TestNamesOfHolders(t *testing.T) {
	l, _ := newLoop(t, "")
	var err error
	if l.pods, err = pods.New(pods.Options{Log: l.log, Socket: "/nowhere/cri.sock"}); err != nil {
		t.Fatal(err)
	}
	holder := func(node string, cookie uint64, pod string) detector.Binding {
		return detector.Binding{Holder: detector.Holder{ID: detector.HolderID{Node: node, Netns: cookie}, Pod: detector.Pod{Name: pod}}}
	}
	l.event(detector.Event{Kind: detector.EventConfirmed, Conflict: detector.Conflict{
		State: detector.Confirmed, Holders: []detector.Binding{holder("n/b", 8, "web"), holder("other/b", 9, ""), holder("n/b", 10, "")},
	}})
	if n := l.pods.Status().Pending; n != 1 {
		t.Errorf("the names of %d are asked for, want 1", n)
	}
}
