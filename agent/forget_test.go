package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// TestEndedIsForgotten: the observer forgets what the agent has dropped, all of one turn together.
func TestEndedIsForgotten(t *testing.T) {
	l, _ := newLoop(t, "")
	var calls [][]bpf.Address
	l.forgetting.forget = func(addresses []bpf.Address) error {
		calls = append(calls, addresses)
		return nil
	}
	pod, machine := l.add(t, 2, 42, "10.0.0.1", "10.0.0.2"), l.add(t, 3, 43)
	l.scanned(machine)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		l.packet(pod, bpf.Announced, ip)
	}
	l.packet(machine, bpf.Announced, "10.0.0.1")
	if len(calls) != 0 {
		t.Fatalf("forgotten %v while all are holders", calls)
	}
	expect := func(step string, want ...bpf.Address) {
		t.Helper()
		if len(calls) != 1 || fmt.Sprint(calls[0]) != fmt.Sprint(want) {
			t.Errorf("%s: forgotten %v, want %v at once", step, calls, want)
		}
		calls = nil
	}
	address := func(index uint32, ip string) bpf.Address {
		return bpf.Address{Ifindex: index, Generation: index, IP: netip.MustParseAddr(ip)}
	}

	l.scanned(pod, func(v *netns.View) { v.Addresses = nil })
	expect("the addresses of a pod are removed", address(2, "10.0.0.1"), address(2, "10.0.0.2"))

	l.packet(pod, bpf.Announced, "10.0.0.1")
	l.pass(time.Now(), 5*time.Second, 50*time.Millisecond) // neither of them answers
	if len(calls) != 1 || len(calls[0]) != 2 {
		t.Errorf("forgotten %v, want both holders of 10.0.0.1", calls)
	}
	calls = nil

	l.packet(machine, bpf.Announced, "10.0.0.3")
	l.scanned(machine, func(v *netns.View) { v.Cookie++ })
	expect("another netns is found behind an interface", address(3, "10.0.0.3"))

	l.update(links.Event{Kind: links.Removed, Interface: pod.Interface, Reason: "gone"}, time.Now())
	l.turn()
	if len(calls) != 0 {
		t.Errorf("forgotten %v of an interface that is gone with its addresses", calls)
	}
}

// TestForgettingFails: that is logged once, and not while the agent stops.
func TestForgettingFails(t *testing.T) {
	var log bytes.Buffer
	fails := errors.New("no memory")
	f := forgetting{log: slog.New(slog.NewTextHandler(&log, nil)), forget: func([]bpf.Address) error { return fails }}
	for range 3 {
		f.add(bpf.Address{})
		f.run()
	}
	fails = fmt.Errorf("forget: %w", os.ErrClosed)
	f.add(bpf.Address{})
	f.run()
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "no memory") {
		t.Errorf("%d log lines, want one:\n%s", n, log.String())
	}
}
