package observe

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

func parsed(t testing.TB, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// harness is a Table with fakes for its options.
type harness struct {
	*Table
	bindings []detector.Binding
	asked    map[[6]byte]ask // by the source of the probe
	watched  map[int]*watch  // by ifindex
	names    map[uint64]pods.Change
	leads    map[string]netip.Addr // the addresses that the node's routes lead to by an interface
	lookups  int                   // of such routes
	rescans  []uint32
	passes   int // over all bindings
	counters map[int]bpf.Counters
	// forgotten are the records whose addresses the observer must report again.
	forgotten []bpf.Record
}

func newHarness(t testing.TB, text string) *harness {
	t.Helper()
	w := &harness{asked: make(map[[6]byte]ask), watched: make(map[int]*watch), names: make(map[uint64]pods.Change), leads: make(map[string]netip.Addr)}
	w.Table = New(Options{
		Log:  slog.New(slog.DiscardHandler),
		Host: detector.HolderID{Node: "n/", Netns: 1},
		Asked: func(source [6]byte) (detector.HolderID, time.Time, bool) {
			return w.asked[source].holder, w.asked[source].sent, source[1] == 0xd0
		},
		Watch: w.watch,
		Now:   time.Now,
		Pod: func(cookie uint64) (pods.Change, bool) {
			change, ok := w.names[cookie]
			return change, ok
		},
		ByHostEnd: func(name string) (pods.Change, bool) {
			for _, change := range w.names {
				if change.Result.Names(name) {
					return change, true
				}
			}
			return pods.Change{}, false
		},
		Leads: func(i *links.Interface, ip netip.Addr) bool {
			w.lookups++
			return w.leads[i.Name] == ip
		},
		Rescan:   func(generation uint32) { w.rescans = append(w.rescans, generation) },
		Counters: func(index int) (bpf.Counters, error) { return w.counters[index], nil },
		Forget:   func(r bpf.Record) { w.forgotten = append(w.forgotten, r) },
		Bindings: func(keep func(*detector.Binding) bool) (kept []detector.Binding) {
			w.passes++
			for _, b := range w.bindings {
				if keep(&b) {
					kept = append(kept, b)
				}
			}
			return kept
		},
	})
	w.Configure(parsed(t, text), time.Now())
	return w
}

// link is an interface as the watcher describes it.
func link(name, master, peer string, index int, cookie uint64, ips ...string) *links.Interface {
	l := &links.Interface{
		Name: name, FirstName: name, Index: index, Generation: uint32(index), Master: master, Up: true,
		State: links.Attached, Seen: true, View: netns.View{Cookie: cookie, Peer: peer, Taken: time.Now()},
		Netns: netns.Ref{Path: "/proc/self/ns/net"},
	}
	for _, ip := range ips {
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
	}
	return l
}

func (w *harness) add(name, master, peer string, index int, cookie uint64, ips ...string) *Interface {
	i, _ := w.Update(links.Event{Kind: links.Added, Interface: link(name, master, peer, index, cookie, ips...)}, time.Now())
	return i
}

// change changes the description of an interface.
func (w *harness) change(i *Interface, f func(*links.Interface)) []Observation {
	next := *i.Interface
	next.View.Addresses = slices.Clone(next.View.Addresses)
	f(&next)
	_, all := w.Update(links.Event{Kind: links.Changed, Interface: &next}, time.Now())
	return all
}

// binds makes the bindings of addresses that an interface announces.
func (w *harness) binds(i *Interface, ips ...string) {
	for _, ip := range ips {
		o, _ := w.Record(i.packet(bpf.Announced, ip, time.Now()))
		w.bindings = append(w.bindings, detector.Binding{Key: o.Sighting.Key, Holder: o.Sighting.Holder, Evidence: detector.Announced, LastSeen: time.Now()})
	}
}

// packet is a record of a packet that an interface sent at a time, or a little later if the thread is interrupted
// between two clocks: never earlier, when the last scan may not have been made yet.
func (i *Interface) packet(kind bpf.Kind, ip string, at time.Time) bpf.Record {
	ago := time.Since(at)
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock)
	return bpf.Record{
		Address: bpf.Address{Ifindex: i.Ref.Ifindex, Generation: i.Ref.Generation, IP: netip.MustParseAddr(ip)},
		Time:    time.Duration(clock.Nano()) - ago, Kind: kind, MAC: [6]byte{2, 1},
	}
}

// No event tells that a local route has ended: whether an address is held by one is decided by a list that was made after
// the packet.
func TestRouteThatEnded(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "cni0", "eth0", 2, 7, "10.0.0.5")
	route := []netns.LocalRoute{{Prefix: netip.MustParsePrefix("10.0.0.0/16"), Where: netns.OnLoopback}}
	w.change(i, func(l *links.Interface) { l.View.LocalRoutes = route })
	at := time.Now()
	for _, test := range []struct {
		routes []netns.LocalRoute
		want   detector.Evidence
	}{{route, detector.Announced}, {nil, detector.Forwarded}} {
		at = at.Add(time.Minute)
		if o, ok := w.Record(i.packet(bpf.Answer, "10.0.0.6", at)); ok {
			t.Fatalf("decided by an old list: %+v", o.Sighting)
		}
		at = at.Add(time.Minute)
		all := w.change(i, func(l *links.Interface) { l.View.Taken, l.View.LocalRoutes = at, test.routes })
		if len(all) != 1 || all[0].Sighting.Evidence != test.want {
			t.Errorf("%+v, want evidence %v", all, test.want)
		}
	}
}

func TestEvidence(t *testing.T) {
	type packet struct {
		kind bpf.Kind
		ip   string
	}
	scanned := func(l *links.Interface) { l.View.Taken = time.Now().Add(time.Hour) }
	unseen := func(l *links.Interface) { l.Seen, l.View, l.Netns = false, netns.View{}, netns.Ref{} }
	guest := func(l *links.Interface) { scanned(l); l.View.Addresses = nil }
	for _, test := range []struct {
		name   string
		change func(*links.Interface)
		packet packet
		want   detector.Evidence // 0: nothing yet
		answer bool
	}{
		{"its own packet", scanned, packet{bpf.Data, "10.0.0.5"}, detector.Data, false},
		{"its own announcement", scanned, packet{bpf.Announced, "10.0.0.5"}, detector.Announced, false},
		{"its own gratuitous ARP", scanned, packet{bpf.Gratuitous, "10.0.0.5"}, detector.Announced, false},
		{"its own answer", scanned, packet{bpf.Answer, "10.0.0.5"}, detector.Announced, true},
		{"a packet of others", scanned, packet{bpf.Data, "10.0.0.6"}, detector.Forwarded, false},
		{"a gratuitous ARP for others", scanned, packet{bpf.Gratuitous, "10.0.0.6"}, detector.Forwarded, false},
		{"an answer for others", scanned, packet{bpf.Answer, "10.0.0.6"}, detector.Forwarded, true},
		{"an address that was added since the last scan", nil, packet{bpf.Data, "10.0.0.6"}, 0, false},
		{"a guest's packet", guest, packet{bpf.Data, "10.0.0.6"}, detector.Data, false},
		{"a packet out of a netns that is not seen", unseen, packet{bpf.Announced, "10.0.0.6"}, detector.Announced, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newHarness(t, "")
			i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
			if test.change != nil {
				w.change(i, test.change)
			}
			o, ok := w.Record(i.packet(test.packet.kind, test.packet.ip, time.Now()))
			if ok != (test.want != 0) || ok && (o.Kind != Seen || o.Sighting.Evidence != test.want || o.Sighting.Answer != test.answer) {
				t.Fatalf("observation %+v, %t; want evidence %v, answer %t", o, ok, test.want, test.answer)
			}
			if test.want != 0 {
				if s := o.Sighting; s.Key.Network != "default" || s.Holder.ID != i.Holder || o.Interface != i.Ref || s.Holder.InterfaceName != "veth0" {
					t.Errorf("sighting %+v", s)
				}
				return
			}
			if len(w.rescans) != 1 || w.Records.Pending() != 1 {
				t.Fatalf("%d scans, %d records wait; want one of each", len(w.rescans), w.Records.Pending())
			}
			all := w.change(i, scanned)
			if len(all) != 1 || all[0].Sighting.Evidence != detector.Forwarded || w.Records.Pending() != 0 {
				t.Errorf("after the scan: %+v, %d records wait", all, w.Records.Pending())
			}
		})
	}
}

// TestEarlyRecords: records wait for the event about their interface.
func TestEarlyRecords(t *testing.T) {
	w := newHarness(t, "")
	i := &Interface{Ref: detector.Interface{Ifindex: 2, Generation: 2}}
	now := time.Now()
	for _, at := range []time.Time{now.Add(-earlyFor - time.Second), now} {
		if o, ok := w.Record(i.packet(bpf.Announced, "10.0.0.5", at)); ok {
			t.Fatalf("an observation of an unknown interface: %+v", o)
		}
	}
	if w.Next().After(now) {
		t.Error("the older record has expired, but Next is later")
	}
	w.Tick(now)
	if w.Records.Pending() != 1 || w.Records.Dropped()[droppedGone] != 1 {
		t.Fatalf("%d records wait, dropped %v; want one of two dropped", w.Records.Pending(), w.Records.Dropped())
	}
	_, all := w.Update(links.Event{Kind: links.Added, Interface: link("veth0", "", "eth0", 2, 7, "10.0.0.5")}, now)
	if len(all) != 1 || all[0].Kind != Seen || all[0].Sighting.Key.IP.String() != "10.0.0.5" {
		t.Errorf("after the event about the interface: %+v", all)
	}
	if w.Records.Pending() != 0 {
		t.Errorf("%d records wait", w.Records.Pending())
	}
}

// TestEarlyFlood: early records of a pod that floods displace none of others, and the memory is limited.
func TestEarlyFlood(t *testing.T) {
	w := newHarness(t, "")
	send := func(index uint32, count int) {
		i := &Interface{Ref: detector.Interface{Ifindex: index, Generation: index}}
		for range count {
			w.Record(i.packet(bpf.Announced, "10.0.0.5", time.Now()))
		}
	}
	send(99, 100_000)
	send(2, 3)
	_, all := w.Update(links.Event{Kind: links.Added, Interface: link("veth0", "", "eth0", 2, 7, "10.0.0.5")}, time.Now())
	if len(all) != 3 {
		t.Errorf("%d of 3 early records were kept beside a flood", len(all))
	}
	if w.Records.Pending() != maxQueue || w.Records.Dropped()[droppedEarly] != 100_000-maxQueue {
		t.Errorf("of the flood %d records wait, dropped %v; want %d to wait", w.Records.Pending(), w.Records.Dropped(), maxQueue)
	}
	for index := range uint32(2 * maxEarly) {
		send(1000+index, 2*maxQueue)
	}
	if n := w.Records.Pending(); n != maxEarly*maxQueue {
		t.Errorf("of many floods %d records wait, want %d", n, maxEarly*maxQueue)
	}
}

// TestRecordsThatWait: the records that wait for a scan are limited. If the scan finds another netns, they are
// dropped, because they are the packets of the previous one. What is dropped has to be reported again.
func TestRecordsThatWait(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	for range maxQueue + 3 {
		w.Record(i.packet(bpf.Data, "10.0.0.6", time.Now()))
	}
	if w.Records.Pending() != maxQueue || w.Records.Dropped()[droppedScan] != 3 || len(w.forgotten) != 3 {
		t.Fatalf("%d records wait, dropped %v, forgotten %d", w.Records.Pending(), w.Records.Dropped(), len(w.forgotten))
	}
	all := w.change(i, func(l *links.Interface) {
		l.View = netns.View{Cookie: 8, Peer: "eth0", Taken: time.Now().Add(time.Hour)}
	})
	if len(all) != 1 || all[0].Kind != Gone {
		t.Errorf("observations %+v, want the end of the previous netns alone", all)
	}
	if w.Records.Pending() != 0 || w.Records.Dropped()[droppedGone] != maxQueue || len(w.forgotten) != 3+maxQueue {
		t.Errorf("%d records wait, dropped %v, forgotten %d", w.Records.Pending(), w.Records.Dropped(), len(w.forgotten))
	}
}

// TestTentative: an address that the pod probes itself is reported and makes no binding.
func TestTentative(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7)
	o, ok := w.Record(i.packet(bpf.Tentative, "10.0.0.5", time.Now()))
	if !ok || o.Kind != Tentative || o.Interface != i.Ref || o.Sighting.Key.IP.String() != "10.0.0.5" {
		t.Errorf("%+v, %t", o, ok)
	}
}

// TestRemoved: the bindings of an interface end with it.
func TestRemoved(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7)
	changed, all := w.Update(links.Event{
		Kind: links.Removed, Interface: i.Interface, Reason: "deleted", Refused: bpf.Counters{RefusedData: 9},
	}, time.Now())
	if changed != nil || len(all) != 1 || all[0].Kind != Gone || all[0].Interface != i.Ref || all[0].Reason != "deleted" {
		t.Errorf("changed %v, observations %+v", changed, all)
	}
	if w.Interface(i.Ref) != nil || w.Refusals.Total().RefusedData != 9 {
		t.Errorf("interface %v, refused %+v", w.Interface(i.Ref), w.Refusals.Total())
	}
}

// TestNames: the name of a pod may be set at any time and ends with the netns.
func TestNames(t *testing.T) {
	w := newHarness(t, "")
	web := pods.Change{Cookie: 7, Pod: detector.Pod{Namespace: "shop", Name: "web-1"}}
	w.names[7] = web
	early := bpf.Record{
		Address: bpf.Address{Ifindex: 2, Generation: 2, IP: netip.MustParseAddr("10.0.0.5")}, Time: time.Since(TimeOf(0)), Kind: bpf.Announced,
	}
	w.Record(early)
	i, all := w.Update(links.Event{Kind: links.Added, Interface: link("veth0", "", "eth0", 2, 7, "10.0.0.5")}, time.Now())
	if len(all) != 1 || all[0].Sighting.Holder.Pod != web.Pod {
		t.Errorf("%+v, want an early record with the name that was known", all)
	}
	web.Pod.Name = "web-2"
	if named, _ := w.Name(web, time.Now()); len(named) != 1 || named[0] != i || i.Describe([6]byte{}).Pod != web.Pod {
		t.Errorf("named %v, the pod is %v", named, i.Pod.Pod)
	}
	all = w.change(i, func(l *links.Interface) { l.Seen, l.Netns, l.View = false, netns.Ref{}, netns.View{} })
	if i.Pod.Pod.Name != "web-1" || i.Holder.Netns != 0 || len(all) != 1 || all[0].Kind != Gone {
		t.Errorf("another holder, %+v, has the name %s, want that of the first pod; %+v", i.Holder, i.Pod.Pod, all)
	}
}

// TestReloadMovesBindings: bindings that move keep their evidence and time, the others stay.
func TestReloadMovesBindings(t *testing.T) {
	w := newHarness(t, "networks: [{name: default, match: {peers: [net1]}}]")
	a, b := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5"), w.add("veth1", "br1", "net1", 3, 7, "10.0.0.6")
	seen := time.Now().Add(-time.Minute)
	for n, i := range []*Interface{a, b} {
		ip := netip.MustParseAddr([]string{"10.0.0.5", "10.0.0.6"}[n])
		i.addVLAN("default", bpf.VLAN{})
		w.bindings = append(w.bindings, detector.Binding{
			Key: detector.Key{Network: "default", IP: ip}, Holder: i.Describe([6]byte{2}), Evidence: detector.Announced, LastSeen: seen,
		})
	}
	all := w.Configure(parsed(t, "networks: [{name: storage, match: {peers: [net1]}}]"), time.Now())
	if len(all) != 2 || all[0].Kind != Withdrawn || all[0].Sighting.Key != w.bindings[1].Key || all[1].Kind != Seen {
		t.Fatalf("observations %+v, want one binding withdrawn and seen", all)
	}
	want := detector.Key{Network: "storage", IP: netip.MustParseAddr("10.0.0.6")}
	if s := all[1].Sighting; s.Key != want || s.Evidence != detector.Announced || !s.At.Equal(seen) || s.Holder != w.bindings[1].Holder {
		t.Errorf("seen again as %+v", s)
	}
	if len(a.VLANs("default")) != 1 {
		t.Error("the interface that stays has left its network")
	}
	if len(b.VLANs("storage")) != 1 || len(b.vlans) != 1 {
		t.Errorf("the interface that moved is in %v, want storage only", b.vlans)
	}
}

// TestLostWhileMoving: an address that leaves a pod does not move with it.
func TestLostWhileMoving(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5", "10.0.0.6")
	w.binds(i, "10.0.0.5", "10.0.0.6")
	all := w.change(i, func(l *links.Interface) { l.Master, l.View.Addresses = "docker0", l.View.Addresses[1:] })
	var seen []detector.Key
	for _, o := range all {
		if o.Kind == Seen {
			seen = append(seen, o.Sighting.Key)
		}
	}
	if want := (detector.Key{Network: "docker0", IP: netip.MustParseAddr("10.0.0.6")}); len(all) != 3 || !slices.Equal(seen, []detector.Key{want}) {
		t.Errorf("%+v, want 10.0.0.6 moved and 10.0.0.5 withdrawn", all)
	}
}

// TestFoundAtStart: a holder's age is known if it, or its address, is newer than its agent.
func TestFoundAtStart(t *testing.T) {
	with, without, guest := link("a", "", "eth0", 1, 11, "10.0.0.1"), link("b", "", "eth0", 2, 12, "10.0.0.2"), link("c", "", "eth0", 3, 13)
	for name, test := range map[string]struct {
		view   netns.View
		listed bool
		want   bool
	}{
		"was there":               {with.View, true, true},
		"came":                    {with.View, false, false},
		"took the address":        {without.View, true, false},
		"guest that was there":    {guest.View, true, true},
		"guest that came":         {guest.View, false, false},
		"was there, but not seen": {netns.View{}, true, true},
	} {
		i := &Interface{Interface: &links.Interface{Listed: test.listed}, first: test.view}
		if got := i.foundAtStart(netip.MustParseAddr("10.0.0.1"), bpf.VLAN{}); got != test.want {
			t.Errorf("%s: found at start %t", name, got)
		}
	}
}

// TestRefusedNeverGoesBack: counters restart from 0 when a program is attached again.
func TestRefusedNeverGoesBack(t *testing.T) {
	var r refused
	r.read(bpf.Counters{RefusedData: 100})
	r.read(bpf.Counters{RefusedData: 120})
	r.read(bpf.Counters{RefusedAnnounced: 150}) // attached again
	if got := r.total(); got != (bpf.Counters{RefusedData: 120, RefusedAnnounced: 150}) {
		t.Errorf("in all %+v", got)
	}
}

// On the port of a VLAN, packets without a tag and those with its number are in one network. Probes of an address have the
// tags of the device that has it, whatever else the pod sends.
func TestTagsOfOneNetwork(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth1", "br1", "net1", 2, 7, "10.0.0.5")
	w.change(i, func(l *links.Interface) {
		l.PortVLAN, l.View.Taken = 100, time.Now().Add(time.Hour)
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.0.0.6"), Where: netns.OnPeer, OuterVLAN: 100, Valid: true})
	})
	for _, test := range []struct {
		ip   string
		sent []bpf.VLAN
		want bpf.VLAN
	}{
		{"10.0.0.5", []bpf.VLAN{{Outer: 100}, {}}, bpf.VLAN{}},
		{"10.0.0.6", []bpf.VLAN{{}, {Outer: 100}}, bpf.VLAN{Outer: 100}},
	} {
		var key detector.Key
		for _, vlan := range test.sent {
			r := i.packet(bpf.Announced, test.ip, time.Now())
			r.VLAN = vlan
			o, _ := w.Record(r)
			if key = o.Sighting.Key; key.Network != "net1@br1.100" {
				t.Fatalf("tags %+v: network %s", vlan, key.Network)
			}
		}
		if got, ok := i.VLAN(key); !ok || got != test.want {
			t.Errorf("%s is probed with the tags %+v, %t; want %+v", test.ip, got, ok, test.want)
		}
	}
	if n := len(i.VLANs("net1@br1.100")); n != 2 {
		t.Errorf("%d tags, want both", n)
	}
}
