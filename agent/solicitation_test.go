package agent

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestSandboxIPs: the runtime's addresses are those of eth0, and asked for only where the
// kernel has none: behind it is a virtual machine.
func TestSandboxIPs(t *testing.T) {
	l := newLoop(t, "")
	container := l.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	secondary := l.add("veth1", "br1", "net1", 3, 7)
	machine := l.add("veth2", "", "eth0", 4, 8)
	for _, i := range []*podInterface{container, secondary, machine} {
		for _, ip := range []string{"10.0.0.5", "10.0.0.6", "0.0.0.0", "127.0.0.1", "fe80::1"} {
			i.sandboxIPs = append(i.sandboxIPs, netip.MustParseAddr(ip))
		}
		l.wantConfigured(i, time.Now())
	}
	if len(container.wanted) != 1 || len(secondary.wanted) != 0 || len(machine.wanted) != 2 {
		t.Errorf("asks %d, %d and %d addresses; want the container for its own, net1 for none, the machine for two",
			len(container.wanted), len(secondary.wanted), len(machine.wanted))
	}
}

// TestConfiguredAndMissing: an address is asked for again when its binding has ended, as long
// as the pod has it and the detector wants to hear of it.
func TestConfiguredAndMissing(t *testing.T) {
	l := newLoop(t, "")
	i := l.add("pod", "", links.PrimaryPeer, 2, 42, "10.0.0.1", "10.0.0.2")
	key := detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.1")}
	where := segmentAddress{ip: key.IP}
	expire := func() {
		for now, end := time.Now(), time.Now().Add(time.Hour); now.Before(end); now = now.Add(time.Second) {
			l.apply(l.detector.Tick(now))
		}
		l.lease()
	}
	l.see(i, "10.0.0.1")
	l.lease()
	if len(i.wanted) != 0 {
		t.Fatal("an address with a binding is asked for")
	}
	expire()
	if i.wanted[where] == nil || len(i.wanted) != 1 {
		t.Errorf("asks for %v, want the address whose binding has expired, and no other", i.wanted)
	}
	// An address that leaves is not one that is missing, whatever ends with it.
	clear(i.wanted)
	l.see(i, "10.0.0.1")
	l.see(l.add("other", "", links.PrimaryPeer, 3, 43, "10.0.0.1"), "10.0.0.1")
	l.lease()
	next := *i.Interface
	next.View.Addresses = next.View.Addresses[1:]
	l.interfaceEvent(links.Event{Kind: links.Changed, Interface: &next})
	l.lease()
	if i.wanted[where] != nil {
		t.Error("an address is asked for that the pod does not have any more")
	}
}

// TestAskedAgainAndAgain: a pod that answers our questions and not those of a verification is
// asked ever more seldom.
func TestAskedAgainAndAgain(t *testing.T) {
	l := newLoop(t, "")
	i := l.add("pod", "", links.PrimaryPeer, 2, 42, "10.0.0.1")
	honest := l.add("honest", "", links.PrimaryPeer, 3, 43, "10.0.0.1")
	where := segmentAddress{ip: netip.MustParseAddr("10.0.0.1")}
	key := detector.Key{Network: "default", IP: where.ip}
	answers := func(one *podInterface, now time.Time) {
		one.addSegment(key.Network, bpf.VLAN{})
		l.apply(l.detector.Observe(detector.Sighting{
			Key: key, Holder: l.describe(one, [6]byte{2}), Evidence: detector.Announced, Answer: true, At: now,
		}, now))
	}
	now, last := time.Now(), time.Duration(0)
	for round := range 6 {
		delete(i.wanted, where)
		answers(i, now)
		for end := now.Add(10 * time.Second); now.Before(end) && i.wanted[where] == nil; now = now.Add(50 * time.Millisecond) {
			answers(honest, now)
			l.apply(l.detector.Tick(now))
			l.lease()
		}
		w := i.wanted[where]
		if w == nil {
			t.Fatalf("round %d: it is not asked again", round)
		}
		wait := w.next.Sub(now)
		if round >= 3 && wait <= last {
			t.Errorf("round %d: it is asked again after %v, after %v before", round, wait, last)
		}
		last = wait
	}
	if last < 10*time.Second {
		t.Errorf("in the end it is asked again after %v", last)
	}
	// What it announces meanwhile does not begin that anew.
	next := i.wanted[where].next
	l.classify(i, bpf.Record{Time: monotonic(time.Now()), Ifindex: i.ref.Ifindex, Generation: i.ref.Generation, Kind: bpf.Announced, IP: where.ip, MAC: [6]byte{2}})
	l.lease()
	if w := i.wanted[where]; w == nil || !w.next.Equal(next) {
		t.Errorf("after an announcement that counts for nothing the question is %+v", w)
	}
}

// TestVanishingIsNotAsked: what is about to go would answer, beside the next that has its address.
func TestVanishingIsNotAsked(t *testing.T) {
	l := newLoop(t, "")
	var err error
	if l.watcher, err = links.New(links.Options{Observer: l.observer, Log: l.log}); err != nil {
		t.Fatal(err)
	}
	gone, there := l.add("gone", "", links.PrimaryPeer, 2, 42, "10.0.0.1"), l.add("there", "", links.PrimaryPeer, 3, 43, "10.0.0.2")
	gone.Place.Path = filepath.Join(t.TempDir(), "gone")
	for _, i := range []*podInterface{gone, there} {
		l.wantConfigured(i, time.Now())
	}
	l.solicitWanted()
	for i, want := range map[*podInterface]int{gone: 0, there: 1} {
		for _, w := range i.wanted {
			if w.tries != want || !w.next.After(time.Now()) {
				t.Errorf("%s was asked %d times and is asked next in %v, want %d and later", i.Name, w.tries, time.Until(w.next), want)
			}
		}
	}
}

// TestUnnumberedPods: addresses on lo are asked for where the pod has no others.
func TestUnnumberedPods(t *testing.T) {
	l := newLoop(t, "")
	onLo := netns.Address{IP: netip.MustParseAddr("10.0.0.53"), Where: netns.OnLoopback, Settled: true}
	nested := netns.Address{IP: netip.MustParseAddr("172.17.0.1"), Where: netns.Elsewhere, Settled: true}
	for _, test := range []struct {
		name string
		i    *podInterface
		more []netns.Address
		want int
	}{
		{"lo alone", l.add("veth0", "", "eth0", 2, 7), []netns.Address{onLo}, 1},
		{"lo and eth0", l.add("veth1", "", "eth0", 3, 8, "10.0.0.5"), []netns.Address{onLo}, 1},
		{"lo and a nested bridge", l.add("veth2", "", "eth0", 4, 9), []netns.Address{onLo, nested}, 0},
		{"a secondary interface", l.add("veth3", "br1", "net1", 5, 9), []netns.Address{onLo}, 0},
		{"a list with holes", l.add("veth4", "", "eth0", 6, 10), []netns.Address{onLo}, 0},
	} {
		test.i.View.Addresses = append(test.i.View.Addresses, test.more...)
		test.i.View.Truncated = test.i.Name == "veth4"
		l.wantConfigured(test.i, time.Now())
		if len(test.i.wanted) != test.want {
			t.Errorf("%s: asks %d addresses, want %d", test.name, len(test.i.wanted), test.want)
		}
	}
}

// TestAddressesThatLeave are asked for where a process may have taken them from the kernel,
// and not for ever.
func TestAddressesThatLeave(t *testing.T) {
	l := newLoop(t, "")
	lose := func(i *podInterface) {
		next := *i.Interface
		next.View.Addresses = next.View.Addresses[1:]
		l.interfaceEvent(links.Event{Kind: links.Changed, Interface: &next})
	}
	all, one := l.add("veth0", "", "eth0", 2, 7, "10.0.0.5"), l.add("veth1", "", "eth0", 3, 8, "10.0.0.6", "10.0.0.7")
	clear(one.wanted)
	lose(all)
	lose(one)
	if where := (segmentAddress{ip: netip.MustParseAddr("10.0.0.5")}); all.wanted[where] == nil {
		t.Errorf("the only address of a pod has left, and is not asked for: %v", all.wanted)
	}
	if where := (segmentAddress{ip: netip.MustParseAddr("10.0.0.6")}); one.wanted[where] != nil {
		t.Error("an address has left a pod that has another, and is asked for")
	}
	for tries := 0; len(all.wanted) > 0; tries++ {
		if tries > 2*len(wantPauses) {
			t.Fatal("there is no end to it")
		}
		for _, w := range all.wanted {
			w.next = time.Now()
		}
		l.solicitWanted()
	}
}
