package agent

import (
	"log/slog"
	"net/netip"
	"os"
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
