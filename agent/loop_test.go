package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/core"
	"github.com/dupip/dupip/agent/core/coretest"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// loopOf makes a loop without kernel and cluster that is not running; the test calls its methods. It sends its probes to sender.
func loopOf(t *testing.T, log *slog.Logger, sender *coretest.Sender, text string) *loop {
	t.Helper()
	resolver, err := pods.New(pods.Options{Log: log, Socket: "none"})
	if err != nil {
		t.Fatal(err)
	}
	opts := core.Options{
		Log: log, Forget: func([]bpf.Address) error { return nil }, HostAddresses: links.ListHostAddresses, Settled: func(uint32) {},
	}
	opts.Observe, opts.Probe = coretest.Parts(sender)
	l := newLoop(opts)
	l.store, _ = state.Open(state.Options{Log: log, Dir: t.TempDir(), Node: "n", BootID: "b"})
	l.pods, l.detected, l.ready = resolver, func(time.Duration) {}, func() {}
	l.report = report.New(report.Options{
		Log: log, Self: cluster.Member{Name: "n", Boot: "b"}, Do: l.do,
		Detector: l.Detector, Table: l.Table, Prober: l.Prober, Exchange: l.Exchange, Pods: l.pods, Books: audit.New(audit.Options{}),
	})
	t.Cleanup(func() { // for those who wait for it
		select {
		case <-l.stopped:
		default:
			close(l.stopped)
		}
	})
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l.Configure(c)
	return l
}

// add adds a pod's eth0 as the watcher would.
func (l *loop) add(t *testing.T, index int, cookie uint64, ips ...string) *observe.Interface {
	t.Helper()
	l.Update(coretest.Added(t, index, cookie, time.Now(), ips...))
	l.Turn()
	return l.Table.Interface(detector.Interface{Ifindex: uint32(index), Generation: uint32(index)})
}

// packet is one from 10.0.0.1.
func (l *loop) packet(i *observe.Interface, kind bpf.Kind) {
	l.Record(coretest.Seen(i, kind, one.String(), time.Now()))
	l.Turn()
}

var one = netip.MustParseAddr("10.0.0.1")

// TestRecordsComeFirst: a pod that probes its address before it uses it again is not probed, if its packet is there before what makes
// the agent suspect another holder has been followed.
func TestRecordsComeFirst(t *testing.T) {
	var probes coretest.Sender
	l := loopOf(t, slog.New(slog.DiscardHandler), &probes, "")
	scannedLate := func(i *observe.Interface) *observe.Interface { // no packet waits for the next scan
		link := *i.Interface
		link.View.Taken = time.Now().Add(time.Hour)
		l.Update(links.Event{Kind: links.Changed, Interface: &link})
		return l.Table.Interface(i.Ref)
	}
	first, second := scannedLate(l.add(t, 2, 42)), scannedLate(l.add(t, 3, 43))
	l.packet(first, bpf.Announced)
	records := make(chan bpf.Record, 2)
	ctx, cancel := context.WithCancel(t.Context())
	l.operations = make(chan func(), 1)
	l.operations <- func() {
		l.Record(coretest.Seen(second, bpf.Announced, "10.0.0.1", time.Now()))
		records <- coretest.Seen(first, bpf.Announced, "10.0.0.2", time.Now())
		records <- coretest.Seen(first, bpf.Tentative, "10.0.0.1", time.Now())
		go func() {
			defer cancel()
			_ = l.do(ctx, func() {}) // after what follows from it
		}()
	}
	if err := l.run(ctx, records, nil); err != nil {
		t.Fatal(err)
	}
	if open := l.Detector.Conflicts(false); len(open) != 1 || probes != 1 {
		t.Errorf("%d conflicts, %d probes; want one, and one for the other holder", len(open), probes)
	}
}

// TestInterfacesFirst: what an interface has sent counts in the network where it is now, however much of both waits.
func TestInterfacesFirst(t *testing.T) {
	l := loopOf(t, slog.New(slog.DiscardHandler), new(coretest.Sender), "networks: [{name: storage, match: {bridges: [br0]}}]")
	i := l.add(t, 2, 7, "10.0.0.1")
	events, records := make(chan links.Event, 20), make(chan bpf.Record, 1)
	for n := range cap(events) {
		link := *i.Interface
		if n == cap(events)-1 {
			link.Master = "br0"
		}
		events <- links.Event{Kind: links.Changed, Interface: &link}
	}
	records <- coretest.Seen(i, bpf.Announced, "10.0.0.1", time.Now())
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
			for _, story := range l.Detector.Explain(one) {
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
	l := loopOf(t, slog.New(slog.DiscardHandler), new(coretest.Sender), "")
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
	l := loopOf(t, slog.New(slog.DiscardHandler), new(coretest.Sender), "")
	var err error
	if l.pods, err = pods.New(pods.Options{Log: l.Log, Socket: "/nowhere/cri.sock"}); err != nil {
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

// TestLateNameIsReported: a runtime lists a pod after its conflict is confirmed, and the log and the reports learn its name.
func TestLateNameIsReported(t *testing.T) {
	out := new(bytes.Buffer)
	l := loopOf(t, slog.New(slog.NewTextHandler(out, nil)), new(coretest.Sender), "")
	both := []*observe.Interface{l.add(t, 2, 42, "10.0.0.1"), l.add(t, 3, 43, "10.0.0.1")}
	now := time.Now()
	for end := now.Add(5 * time.Second); now.Before(end); now = now.Add(50 * time.Millisecond) {
		for _, i := range both {
			l.Exchange.Observe(detector.Sighting{Key: detector.Key{Network: "default", IP: one}, Holder: i.Describe([6]byte{2}), Evidence: detector.Announced, Answer: true, At: now}, now)
		}
		l.Exchange.Tick(now)
		l.Turn()
	}
	if !strings.Contains(out.String(), "conflict confirmed") {
		t.Fatalf("no conflict: %s", out)
	}
	out.Reset()
	for range 2 {
		l.Name(pods.Change{Cookie: 43, Pod: detector.Pod{Namespace: "shop", Name: "new"}})
		l.Turn()
	}
	if got := out.String(); strings.Count(got, "conflict changed") != 1 || !strings.Contains(got, "is shop/new") || !strings.Contains(got, "holder2.pod=shop/new") {
		t.Errorf("the log is %s", got)
	}
}
