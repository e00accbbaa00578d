package observe

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestMirror: a holder that sends our probe back may also send the answers of others back. It holds only
// what its netns lists.
func TestMirror(t *testing.T) {
	w := newHarness(t, "")
	began := time.Now()
	evidence := func(i *Interface, kind bpf.Kind, mac [6]byte, ip string, after time.Duration) detector.Evidence {
		at := began.Add(after)
		i.View.Taken = at.Add(time.Second)
		r := i.packet(kind, ip, at)
		r.MAC = mac
		o, ok := w.Record(r)
		if !ok {
			return 0
		}
		if o.Kind != Seen {
			t.Errorf("%+v", o)
		}
		return o.Sighting.Evidence
	}
	guest := [6]byte{2, 1}
	machine, second := w.add("veth0", "", "eth0", 2, 7), w.add("veth1", "", "net1", 3, 7)
	bystander, unseen := w.add("veth2", "", "eth0", 4, 8), w.add("veth3", "", "eth0", 5, 9)
	w.change(unseen, func(l *links.Interface) { l.Seen = false })
	second.View.Addresses = append(second.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.0.0.9"), Where: netns.OnLoopback, Valid: true})

	answers := 0
	answer := func(i *Interface, after time.Duration, want detector.Evidence, when string) {
		t.Helper()
		answers++
		if got := evidence(i, bpf.Answer, guest, fmt.Sprintf("10.0.1.%d", answers), after); got != want {
			t.Errorf("%s: an answer on %s is %v, want %v", when, i.Name, got, want)
		}
	}
	cameBack := func(i *Interface, ip string, after time.Duration) {
		t.Helper()
		if got := evidence(i, bpf.Tentative, w.MAC, ip, after); got != 0 {
			t.Errorf("our own probe is %v, want nothing", got)
		}
	}
	all := []*Interface{machine, second, bystander, unseen}
	// Faked probes: the address was not probed, or behind another holder.
	w.probed[netip.MustParseAddr("10.0.0.5")] = machine.Holder
	for _, i := range all {
		cameBack(i, "10.0.0.6", time.Second)
	}
	cameBack(bystander, "10.0.0.5", time.Second)
	for _, i := range all {
		answer(i, time.Second, detector.Announced, "before")
	}
	// A probe comes back on another interface of the holder.
	w.probed[netip.MustParseAddr("10.0.0.6")] = machine.Holder
	w.probed[netip.MustParseAddr("10.0.0.7")] = unseen.Holder
	cameBack(second, "10.0.0.6", 2*time.Second)
	cameBack(unseen, "10.0.0.7", 2*time.Second)
	answer(machine, 3*time.Second, detector.Forwarded, "after")
	answer(second, 3*time.Second, detector.Forwarded, "after")
	answer(unseen, 3*time.Second, detector.Forwarded, "after")
	answer(bystander, 3*time.Second, detector.Announced, "after")
	if got := evidence(second, bpf.Answer, guest, "10.0.0.9", 3*time.Second); got != detector.Announced {
		t.Errorf("an answer for an address of its own is %v, want announced", got)
	}
	answer(machine, 3*time.Second+mirrorFor, detector.Announced, "long after")
	// Behind the interface there is another holder now.
	w.change(second, func(l *links.Interface) { l.View.Cookie = 10 })
	answer(second, 3*time.Second, detector.Announced, "another holder")
}
