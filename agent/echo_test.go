package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestMirror: who sends our question back may send back what others answer, and does not
// hold what its netns does not list.
func TestMirror(t *testing.T) {
	l := newLoop(t, "")
	l.mac = [6]byte{2, 0xd0}
	began := time.Now()
	evidence := func(i *podInterface, kind bpf.Kind, mac [6]byte, ip string, after time.Duration) detector.Evidence {
		at := began.Add(after)
		i.View.Taken = at.Add(time.Second)
		l.classify(i, bpf.Record{Time: monotonic(at), Ifindex: i.ref.Ifindex, Generation: i.ref.Generation, Kind: kind, IP: netip.MustParseAddr(ip), MAC: mac})
		for _, b := range l.detector.Bindings(nil) {
			if b.Key.IP.String() == ip && b.Holder.ID == i.holder {
				return b.Evidence
			}
		}
		return 0
	}
	guest := [6]byte{2, 1}
	machine, second := l.add("veth0", "", "eth0", 2, 7), l.add("veth1", "", "net1", 3, 7)
	bystander, unseen := l.add("veth2", "", "eth0", 4, 8), l.add("veth3", "", "eth0", 5, 9)
	unseen.Seen = false
	second.View.Addresses = append(second.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.0.0.9"), Where: netns.OnLoopback, Settled: true})

	answers := 0
	answer := func(i *podInterface, after time.Duration, want detector.Evidence, when string) {
		t.Helper()
		answers++
		if got := evidence(i, bpf.Answer, guest, fmt.Sprintf("10.0.1.%d", answers), after); got != want {
			t.Errorf("%s: an answer on %s is %v, want %v", when, i.Name, got, want)
		}
	}
	cameBack := func(i *podInterface, ip string, after time.Duration) {
		t.Helper()
		if got := evidence(i, bpf.Tentative, l.mac, ip, after); got != 0 || len(i.probes) > 0 {
			t.Errorf("our own question is %v and %d probes, want nothing of either", got, len(i.probes))
		}
	}
	all := []*podInterface{machine, second, bystander, unseen}
	// Others say it as if they were us, or long after.
	machine.asked(netip.MustParseAddr("10.0.0.5"), began.Add(-echoWithin))
	for _, i := range all {
		cameBack(i, "10.0.0.6", time.Second)
	}
	cameBack(machine, "10.0.0.5", time.Second)
	cameBack(bystander, "10.0.0.5", -time.Second)
	for _, i := range all {
		answer(i, time.Second, detector.Announced, "before")
	}
	// It goes in at one interface and comes out of another.
	machine.asked(netip.MustParseAddr("10.0.0.6"), began.Add(time.Second))
	unseen.asked(netip.MustParseAddr("10.0.0.7"), began.Add(time.Second))
	cameBack(second, "10.0.0.6", 2*time.Second)
	cameBack(unseen, "10.0.0.7", 2*time.Second)
	answer(machine, 3*time.Second, detector.Forwarded, "after")
	answer(second, 3*time.Second, detector.Forwarded, "after")
	answer(unseen, 3*time.Second, detector.Forwarded, "after")
	answer(bystander, 3*time.Second, detector.Announced, "after")
	if got := evidence(second, bpf.Answer, guest, "10.0.0.9", 3*time.Second); got != detector.Announced {
		t.Errorf("an answer for an address of its own is %v, want announced", got)
	}
	answer(machine, 3*time.Second+echoFor, detector.Announced, "long after")
}

// TestEchoesAreBounded: neither many questions nor many mirrors are kept.
func TestEchoesAreBounded(t *testing.T) {
	l := newLoop(t, "")
	i := l.add("veth0", "", "eth0", 2, 7)
	now := time.Now()
	ip := netip.MustParseAddr("10.0.0.1")
	for range 3 * maxAsked {
		i.asked(ip, now)
		ip = ip.Next()
	}
	var e echoes
	for n := range uint64(3 * maxEchoes) {
		e.add(detector.HolderID{Netns: n}, now)
	}
	if len(i.questions) != maxAsked || len(e.heard) != maxEchoes {
		t.Errorf("%d questions and %d mirrors are kept", len(i.questions), len(e.heard))
	}
	// Those that are kept are renewed all the same.
	soon := now.Add(time.Second)
	i.asked(netip.MustParseAddr("10.0.0.1"), soon)
	e.add(detector.HolderID{Netns: 1}, soon)
	if got := i.questions[netip.MustParseAddr("10.0.0.1")]; !got.Equal(soon) {
		t.Errorf("a question that was asked again is of %v, want %v", got, soon)
	}
	if got := e.heard[detector.HolderID{Netns: 1}]; !got.Equal(soon) {
		t.Errorf("a mirror that was heard again was heard at %v, want %v", got, soon)
	}
	later := now.Add(echoFor + time.Minute)
	i.asked(ip, later)
	e.add(detector.HolderID{Netns: 1 << 40}, later)
	if len(i.questions) != 1 || len(e.heard) != 1 || !e.from(detector.HolderID{Netns: 1 << 40}, later) {
		t.Errorf("later %d questions and %d mirrors are kept", len(i.questions), len(e.heard))
	}
}
