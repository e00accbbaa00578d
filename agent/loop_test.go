package agent

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

func TestMain(m *testing.M) { ownnetns.Main(m) }

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newLoop makes a loop that is not running; the test calls it as its goroutine would.
func newLoop(t *testing.T, text string) *loop {
	t.Helper()
	o, err := bpf.Load(bpf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	resolver, err := pods.New(pods.Options{Log: slog.New(slog.DiscardHandler), Socket: "none"})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := solicit.Open(solicit.MAC("n", "boot"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Close() })
	l := &loop{
		sender: sender,
		log:    slog.New(slog.DiscardHandler), node: Node{Name: "n"}, watcher: new(links.Watcher), observer: o, pods: resolver,
		host:     detector.HolderID{Node: "n/", Netns: 1},
		detector: detector.New(detector.Options{Node: "n/"}),
	}
	l.init()
	l.confirmed = func(time.Duration) {}
	l.configure(parsed(t, text))
	return l
}

// add puts an interface on the list as the watcher would.
func (l *loop) add(name, master, peer string, index int, cookie uint64, ips ...string) *podInterface {
	iface := &links.Interface{
		Name: name, Index: index, Generation: uint32(index), Master: master, Up: true,
		State: links.Attached, Seen: true, View: netns.View{Cookie: cookie, Peer: peer, Taken: time.Now()},
		Place: netns.Place{Path: "/proc/self/ns/net"},
	}
	if info, err := os.Stat(iface.Place.Path); err == nil { // it is there all the time
		iface.Place.Inode = info.Sys().(*syscall.Stat_t).Ino
	}
	for _, ip := range ips {
		iface.View.Addresses = append(iface.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Settled: true})
	}
	i := &podInterface{
		Interface: iface, ref: detector.Interface{Ifindex: uint32(index), Generation: uint32(index)},
		holder: detector.HolderID{Node: l.node.ID(), Netns: cookie}, segments: make(map[string]bpf.VLAN),
		probes: make(map[segmentAddress]time.Time), wanted: make(map[segmentAddress]*want),
	}
	l.interfaces[i.ref] = i
	return i
}

// see is an announcement from behind an interface.
func (l *loop) see(i *podInterface, ip string) {
	addr := netip.MustParseAddr(ip)
	name := network(l.config, i.Interface, bpf.VLAN{}, addr)
	i.addSegment(name, bpf.VLAN{})
	l.apply(l.detector.Observe(detector.Sighting{
		Key: detector.Key{Network: name, IP: addr}, Holder: l.describe(i, [6]byte{2}),
		Evidence: detector.Announced, At: time.Now(),
	}, time.Now()))
}

// TestNotReadyBeforeTheFirstLook: a reload in the first moment says nothing about pods.
func TestNotReadyBeforeTheFirstLook(t *testing.T) {
	l := newLoop(t, "")
	l.configure(parsed(t, ""))
	if l.ready {
		t.Error("ready before anything was looked at")
	}
	l.interfaceEvent(links.Event{Kind: links.HostAddresses})
	if !l.ready {
		t.Error("not ready after the first look")
	}
}

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

// TestReloadMovesBindings: what moves keeps its evidence and its time, the rest stays.
func TestReloadMovesBindings(t *testing.T) {
	l := newLoop(t, "networks: [{name: default, match: {peers: [net1]}}]")
	a := l.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	b := l.add("veth1", "br1", "net1", 3, 7, "10.0.0.6")
	l.see(a, "10.0.0.5")
	l.see(b, "10.0.0.6")
	before := l.detector.Bindings(nil)
	l.configure(parsed(t, "networks: [{name: storage, match: {peers: [net1]}}]"))
	after := l.detector.Bindings(nil)
	if len(before) != 2 || len(after) != 2 {
		t.Fatalf("%d bindings, then %d, want 2", len(before), len(after))
	}
	for n, want := range []string{"default", "storage"} {
		got := after[n]
		if got.Key != (detector.Key{Network: want, IP: before[n].Key.IP}) || got.Evidence != detector.Announced ||
			!got.LastSeen.Equal(before[n].LastSeen) {
			t.Errorf("%+v is now %+v, want it in %s", before[n], got, want)
		}
	}
	if !after[0].FirstSeen.Equal(before[0].FirstSeen) {
		t.Error("the binding that stays is a new one")
	}
	if _, ok := a.segments["default"]; !ok {
		t.Error("the interface that stays has left its network")
	}
	if _, ok := b.segments["storage"]; !ok || len(b.segments) != 1 {
		t.Errorf("the interface that moved is in %v, want storage only", b.segments)
	}
}

// TestSameNetworks: only a rule that matches one of the two makes a difference.
func TestSameNetworks(t *testing.T) {
	before := &links.Interface{Name: "veth0", Seen: true, View: netns.View{Peer: "eth0"}}
	for _, test := range []struct {
		text         string
		name, master string
		same         bool
	}{
		{"networks: [{name: default, scope: cluster}]", "cali0", "", true},
		{"networks: [{name: other, match: {interfaces: [tap*]}}]", "cali0", "cni0", true},
		{"networks: [{name: other, match: {interfaces: [cali*]}}]", "cali0", "", false},
		{"networks: [{name: other, match: {bridges: [cni0]}}]", "veth0", "cni0", false},
		{"", "veth0", "docker0", false},
	} {
		after := &links.Interface{Name: test.name, Master: test.master, Seen: true, View: netns.View{Peer: "eth0"}}
		if got := sameNetworks(parsed(t, test.text), before, after); got != test.same {
			t.Errorf("%s: to %s on %q: same %t, want %t", test.text, test.name, test.master, got, test.same)
		}
	}
	port := links.Interface{Name: "veth1", Master: "br1", PortVLAN: 100, Seen: true, View: netns.View{Peer: "net1"}}
	other := port
	other.PortVLAN = 200
	if sameNetworks(parsed(t, ""), &port, &other) {
		t.Error("another VLAN of the bridge is taken for the same network")
	}
}

// TestHostAddresses: one address is known in every network it is in, and only there.
func TestHostAddresses(t *testing.T) {
	l := newLoop(t, "networks: [{name: a, match: {interfaces: [br-a]}}, {name: b, match: {bridges: [br-b, vrf-b]}}]")
	ip := netip.MustParseAddr("10.0.0.1")
	heard := func(networks ...string) {
		t.Helper()
		for _, network := range []string{"default", "a", "b"} {
			want := slices.Contains(networks, network)
			if got := l.detector.Heard(detector.Key{Network: network, IP: ip}, l.host); got != want {
				t.Errorf("known in %s: %t, want %t", network, got, want)
			}
		}
	}
	l.followHost([]links.HostAddress{{IP: ip, Device: "br-a", Index: 5}, {IP: ip, Device: "br-b", Index: 6}, {IP: ip, Device: "veth1", Index: 7}}, time.Now())
	heard("default", "a", "b")
	l.followHost([]links.HostAddress{{IP: ip, Device: "br-b", Index: 6}}, time.Now())
	heard("b")
	l.followHost([]links.HostAddress{{IP: ip, Device: "eth9", Index: 8, Master: "vrf-b"}}, time.Now())
	heard("b")
	l.configure(parsed(t, ""))
	heard("default")
	if got := l.hostIPs(); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("the node's addresses are %v", got)
	}
	var many []links.HostAddress
	for n := range 1000 {
		many = append(many, links.HostAddress{IP: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), Device: "eth0", Index: 2})
	}
	l.followHost(many, time.Now())
	if n := len(l.hostBindings); n != maxHostKeys {
		t.Errorf("%d addresses of the node are kept, want %d", n, maxHostKeys)
	}
}

// TestLimitsOfTheConfiguration take effect at the start and at a reload.
func TestLimitsOfTheConfiguration(t *testing.T) {
	l := newLoop(t, "limits: {verifyPerSecond: 7, bindings: 1, bindingsPerInterface: 1}")
	through := 0
	for l.verifyRate.Allow() {
		through++
	}
	if through < 7 || through > 8 {
		t.Errorf("lets %d questions through at once, want 7", through)
	}
	i := l.add("veth0", "", "eth0", 2, 7, "10.0.0.5", "10.0.0.6")
	l.see(i, "10.0.0.5")
	l.see(i, "10.0.0.6")
	if n := len(l.detector.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings, want 1", n)
	}
	l.configure(parsed(t, ""))
	l.see(i, "10.0.0.6")
	if n := len(l.detector.Bindings(nil)); n != 2 {
		t.Errorf("%d bindings after the limit was lifted, want 2", n)
	}
	if limit := l.verifyRate.Limit(); limit != 500 {
		t.Errorf("%v questions a second after the reload, want 500", limit)
	}
}

// monotonic is the opposite of timeOf.
func monotonic(at time.Time) time.Duration { return at.Sub(timeOf(0)) }

// TestRefusedNeverGoesBack: counters begin anew when a program is attached anew.
func TestRefusedNeverGoesBack(t *testing.T) {
	var r refused
	r.read(bpf.Counters{RefusedData: 100})
	r.read(bpf.Counters{RefusedData: 120})
	r.read(bpf.Counters{RefusedAnnounced: 150}) // attached anew meanwhile
	if got := r.total(); got != (bpf.Counters{RefusedData: 120, RefusedAnnounced: 150}) {
		t.Errorf("in all %+v", got)
	}
}

// TestNameGoesWithTheNetns: another netns behind the interface is another pod.
func TestNameGoesWithTheNetns(t *testing.T) {
	l := newLoop(t, "")
	i := l.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	i.pod = detector.Pod{Namespace: "ns", Name: "former"}
	next := *i.Interface
	next.Seen, next.Place, next.View = false, netns.Place{}, netns.View{}
	l.interfaceEvent(links.Event{Kind: links.Changed, Interface: &next})
	if i.pod != (detector.Pod{}) {
		t.Errorf("another holder, %+v, has the name %s", i.holder, i.pod)
	}
}
