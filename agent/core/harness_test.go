package core

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/core/coretest"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// harness is a core without kernel and cluster, in time of its own.
type harness struct {
	*Core
	now    time.Time
	probes coretest.Sender // how many were sent
}

func newHarness(t *testing.T, text string) *harness {
	t.Helper()
	return newHarnessOn(t, text, "")
}

// newHarnessOn is newHarness of a node that receives gossip at an address.
func newHarnessOn(t *testing.T, text, gossip string) *harness {
	t.Helper()
	l := &harness{now: time.Now()}
	opts := Options{
		Log: slog.New(slog.DiscardHandler), Now: l.clock, Event: func(detector.Event) {}, Ready: func() {}, Save: func() {},
		Forget: func([]bpf.Address) error { return nil }, HostAddresses: links.ListHostAddresses, Settled: func(uint32) {},
	}
	opts.Observe, opts.Probe = coretest.Parts(&l.probes)
	if gossip != "" {
		opts.Observe.GossipAddress = netip.MustParseAddr(gossip)
	}
	l.Core = New(opts)
	l.Configure(parsed(t, text))
	return l
}

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clock lets a moment pass with each look at it.
func (l *harness) clock() time.Time {
	l.now = l.now.Add(time.Microsecond)
	return l.now
}

// add adds a pod's eth0 as the watcher would.
func (l *harness) add(t *testing.T, index int, cookie uint64, ips ...string) *observe.Interface {
	t.Helper()
	l.Update(coretest.Added(t, index, cookie, l.now, ips...))
	l.Turn()
	return l.Table.Interface(detector.Interface{Ifindex: uint32(index), Generation: uint32(index)})
}

// pass lets time pass.
func (l *harness) pass(span, step time.Duration) {
	for end := l.now.Add(span); l.now.Before(end); l.now = l.now.Add(step) {
		l.Tick()
		l.Turn()
	}
}

func (l *harness) unanswered(i *observe.Interface) int {
	return l.Prober.Unanswered(i.Ref, one, bpf.VLAN{})
}

// scanned has an interface scanned so late that no packet waits for the next scan.
func (l *harness) scanned(i *observe.Interface, changes ...func(*netns.View)) *observe.Interface {
	next := *i.Interface
	next.View.Taken = l.now.Add(time.Hour)
	for _, change := range changes {
		change(&next.View)
	}
	l.Update(links.Event{Kind: links.Changed, Interface: &next})
	l.Turn()
	return l.Table.Interface(i.Ref)
}

// packet is a packet of a pod.
func (l *harness) packet(i *observe.Interface, kind bpf.Kind, ip string) {
	l.Record(coretest.Seen(i, kind, ip, l.now))
	l.Turn()
}

var one = netip.MustParseAddr("10.0.0.1")
