package core

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
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestEndedIsForgotten: the observer forgets what the agent has dropped, all of one turn together.
func TestEndedIsForgotten(t *testing.T) {
	l := newHarness(t, "")
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
	l.pass(5*time.Second, 50*time.Millisecond) // neither of them answers
	if len(calls) != 1 || len(calls[0]) != 2 {
		t.Errorf("forgotten %v, want both holders of 10.0.0.1", calls)
	}
	calls = nil

	l.packet(machine, bpf.Announced, "10.0.0.3")
	l.scanned(machine, func(v *netns.View) { v.Cookie++ })
	expect("another netns is found behind an interface", address(3, "10.0.0.3"))

	l.Update(links.Event{Kind: links.Removed, Interface: pod.Interface, Reason: "gone"})
	l.Turn()
	if len(calls) != 0 {
		t.Errorf("forgotten %v of an interface that is gone with its addresses", calls)
	}
}

// TestOtherInterfaceOfPod: an interface goes through which alone an address was known. The pod is asked through its other one, which has
// the address, too.
func TestOtherInterfaceOfPod(t *testing.T) {
	l := newHarness(t, "")
	const ip = "10.0.0.1"
	first, other, stranger := l.add(t, 2, 42, ip), l.add(t, 3, 42), l.add(t, 4, 43)
	l.packet(first, bpf.Announced, ip)
	for _, i := range []*observe.Interface{other, stranger} {
		l.scanned(i, func(v *netns.View) {
			v.Addresses = append(v.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
		})
	}
	l.Tick()
	before := l.probes
	l.Update(links.Event{Kind: links.Removed, Interface: first.Interface, Reason: "gone"})
	l.Turn()
	l.Tick()
	if sent := l.probes - before; sent != 1 {
		t.Errorf("%d probes sent, want 1 through the other interface", sent)
	}
}

// TestManyInterfacesOfPod: ten interfaces of a pod send from one address by turns, and the last of them go. Those that are left are asked,
// although the detector keeps few for each address.
func TestManyInterfacesOfPod(t *testing.T) {
	l := newHarness(t, "")
	const ip, count, gone = "10.0.0.1", 10, 4
	var all []*observe.Interface
	for n := range count {
		i := l.add(t, 2+n, 42, ip)
		l.packet(i, bpf.Announced, ip)
		all = append(all, i)
	}
	l.Tick()
	before := l.probes
	for _, i := range all[count-gone:] {
		l.Update(links.Event{Kind: links.Removed, Interface: i.Interface, Reason: "gone"})
		l.Turn()
	}
	l.Tick()
	if sent := l.probes - before; sent != count-gone {
		t.Errorf("%d probes sent, want one through each of the %d that are left", sent, count-gone)
	}
	if l.packet(all[0], bpf.Announced, ip); len(l.Detector.Bindings(func(*detector.Binding) bool { return true })) != 1 {
		t.Error("the answer makes no binding")
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
