package core

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/core/coretest"
	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestDebugLines: debug lines show what is asked, what is answered, and why a record is dropped.
func TestDebugLines(t *testing.T) {
	l := newHarness(t, "limits: {bindingsPerInterface: 2}")
	out := l.logTo(slog.LevelDebug)
	expect := func(want string) {
		t.Helper()
		if n := strings.Count(out.String(), "level=DEBUG msg="+want); n != 1 {
			t.Errorf("%d times %q in\n%s", n, want, out)
		}
		out.Reset()
	}
	sent := new(last)
	l.Prober.Sender = sent
	i := l.add(t, 2, 42, "10.0.0.1")
	expect(`"probe sent" ip=10.0.0.1 interface=veth vlan=0 innerVLAN=0 purpose=refresh`)
	answer := coretest.Seen(i, bpf.Answer, "10.0.0.1", l.now)
	answer.To = sent.Source
	l.Record(answer)
	l.Turn()
	if !strings.Contains(out.String(), " took=") {
		t.Errorf("nothing says how long the pod took: %s", out)
	}
	expect(`"reply received" ip=10.0.0.1 network=default interface=veth pod="" mac=02:00:00:00:00:00 evidence=announced`)
	l.packet(i, bpf.Data, "10.0.0.1")
	if out.Len() > 0 {
		t.Errorf("an ordinary packet is logged: %s", out)
	}
	verify := exchange.Probe{Probe: detector.Probe{Key: detector.Key{Network: "default", IP: one}, Holder: i.Holder, Interface: i.Ref, Purpose: detector.Verify}}
	l.probe(verify)
	expect(`"probe sent" ip=10.0.0.1 interface=veth vlan=0 innerVLAN=0 purpose=verify`)
	l.Prober.Budget = probe.NewBudget(0, 0)
	l.probe(verify)
	expect(`"probe not sent" ip=10.0.0.1 network=default ifindex=2 purpose=verify reason="the node's rate limit"`)

	next := *i.Interface // its addresses cannot be seen any more: what it sends counts
	next.View.Peer, next.View.Addresses, next.Seen = "", nil, false
	l.Update(links.Event{Kind: links.Changed, Interface: &next})
	l.Turn()
	out.Reset()
	for _, ip := range []string{"10.0.0.3", "10.0.0.4"} {
		l.packet(i, bpf.Announced, ip)
	}
	if out.Len() > 0 {
		t.Errorf("records that are not dropped are logged: %s", out)
	}
	l.packet(i, bpf.Data, "10.0.0.5")
	expect(`"record dropped" ip=10.0.0.5 network=default interface=veth mac=02:00:00:00:00:00 reason="interface full"`)
	unknown := &observe.Interface{Ref: detector.Interface{Ifindex: 2, Generation: 9}}
	for range 257 {
		l.packet(unknown, bpf.Announced, "10.0.0.6")
	}
	expect(`"record dropped" ip=10.0.0.6 kind=announced interface="" ifindex=2 vlan=0 innerVLAN=0 mac=02:00:00:00:00:00 reason=early`)
}

// TestLogCostsNothing: without debug lines, the path of packets allocates nothing for the log.
func TestLogCostsNothing(t *testing.T) {
	l := newHarness(t, "limits: {bindingsPerInterface: 1}")
	i := l.add(t, 2, 42, "10.0.0.1", "10.0.0.2")
	l.packet(i, bpf.Announced, "10.0.0.1")
	out := l.logTo(slog.LevelInfo)
	early := bpf.Record{Address: bpf.Address{Ifindex: 9, Generation: 9, IP: one}, Time: time.Since(time.Time{}), Kind: bpf.Announced}
	for range 300 {
		l.Table.Record(early)
	}
	l.forgetting.list = make([]bpf.Address, 0, 1000)
	answer := detector.Sighting{
		Key: detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.1")}, Holder: i.Describe([6]byte{2}), Evidence: detector.Announced, Answer: true,
	}
	for name, f := range map[string]func(){
		"a record that is dropped": func() { l.Table.Record(early) },
		"a reply":                  func() { l.Prober.Observed(i.Ref, bpf.VLAN{}, &answer, [6]byte{}) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if out.Len() > 0 {
		t.Errorf("the log is %s", out)
	}
}

// last is the last probe that was sent.
type last struct{ probe.Target }

func (s *last) Send(t probe.Target) error {
	s.Target = t
	return nil
}

// logTo makes the parts of a core log into a buffer.
func (l *harness) logTo(level slog.Level) *bytes.Buffer {
	out := new(bytes.Buffer)
	l.Log = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	l.Table.Log, l.Prober.Log = l.Log, l.Log
	return out
}
