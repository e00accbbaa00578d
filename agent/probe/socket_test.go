package probe_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestMain(m *testing.M) { ownnetns.Main(m) }

var mac = [6]byte{2, 0, 0, 0xaa, 0xbb, 0xcc}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestARPFrame(t *testing.T) {
	data, err := probe.Frame(probe.Target{IP: netip.MustParseAddr("10.0.0.7"), VLAN: bpf.VLAN{Outer: 200, Inner: 100}, Source: mac})
	must(t, err)
	var frame ethernet.Frame
	must(t, frame.UnmarshalBinary(data))
	if frame.ServiceVLAN == nil || frame.ServiceVLAN.ID != 200 || frame.VLAN == nil || frame.VLAN.ID != 100 {
		t.Errorf("tags %v %v, want 200 and 100", frame.ServiceVLAN, frame.VLAN)
	}
	var packet arp.Packet
	must(t, packet.UnmarshalBinary(frame.Payload))
	if packet.Operation != arp.OperationRequest || packet.SenderIP != netip.IPv4Unspecified() ||
		packet.TargetIP != netip.MustParseAddr("10.0.0.7") || !bytes.Equal(packet.SenderHardwareAddr, mac[:]) {
		t.Errorf("packet %+v, want a probe for 10.0.0.7", packet)
	}
}

func TestNDPFrame(t *testing.T) {
	target := netip.MustParseAddr("fd00::12:3456")
	data, err := probe.Frame(probe.Target{IP: target, Source: mac})
	must(t, err)
	var frame ethernet.Frame
	must(t, frame.UnmarshalBinary(data))
	if want := (net.HardwareAddr{0x33, 0x33, 0xff, 0x12, 0x34, 0x56}); !bytes.Equal(frame.Destination, want) {
		t.Errorf("destination %s, want %s", frame.Destination, want)
	}
	packet := frame.Payload
	source := netip.AddrFrom16([16]byte(packet[8:24]))
	if !source.IsLinkLocalUnicast() {
		t.Errorf("source %s: must be link-local, never ::", source)
	}
	if packet[7] != 255 {
		t.Errorf("hop limit %d, want 255", packet[7])
	}
	message, err := ndp.ParseMessage(packet[40:])
	must(t, err)
	solicitation, ok := message.(*ndp.NeighborSolicitation)
	if !ok || solicitation.TargetAddress != target || len(solicitation.Options) != 1 {
		t.Fatalf("message %+v, want a solicitation for %s with one option", message, target)
	}
}

func TestSourceIsUnicastLocalAndStable(t *testing.T) {
	a, b := probe.Source("n1", "boot"), probe.Source("n2", "boot")
	if a[0]&1 != 0 || a[0]&2 == 0 {
		t.Errorf("%s is not unicast and locally administered", a)
	}
	if a == b || a != probe.Source("n1", "boot") {
		t.Errorf("%s and %s: want one per node", a, b)
	}
}

// TestHostNeighbourStays shows why the source is a foreign MAC: two pods on one bridge have one address,
// and our probe of one must not redirect the host's traffic to it.
func TestHostNeighbourStays(t *testing.T) {
	testneeds.Root(t)
	bridgeAttrs := netlink.NewLinkAttrs()
	bridgeAttrs.Name = "br0"
	bridge := &netlink.Bridge{LinkAttrs: bridgeAttrs}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
	for _, address := range []string{"10.5.0.1/24", "fd00:5::1/64"} {
		parsed, err := netlink.ParseAddr(address)
		must(t, err)
		parsed.Flags = unix.IFA_F_NODAD
		must(t, netlink.AddrAdd(bridge, parsed))
	}
	must(t, netlink.LinkSetUp(bridge))
	// Otherwise a new entry is locked for a second.
	must(t, os.WriteFile("/proc/sys/net/ipv4/neigh/br0/locktime", []byte("0"), 0o644))
	var pods []*netlink.Veth
	for _, name := range []string{"pod1", "pod2"} {
		pod := ownnetns.NewPod(t)
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = name, bridge.Index
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
		must(t, netlink.LinkAdd(veth))
		t.Cleanup(func() { _ = netlink.LinkDel(veth) })
		must(t, netlink.LinkSetUp(veth))
		must(t, netns.Do(pod.Open(t), func() error {
			eth0, err := netlink.LinkByName("eth0")
			must(t, err)
			for _, address := range []string{"10.5.0.7/24", "fd00:5::7/64"} {
				parsed, err := netlink.ParseAddr(address)
				must(t, err)
				parsed.Flags = unix.IFA_F_NODAD
				must(t, netlink.AddrAdd(eth0, parsed))
			}
			return netlink.LinkSetUp(eth0)
		}))
		pods = append(pods, veth)
	}
	ips := []netip.Addr{netip.MustParseAddr("10.5.0.7"), netip.MustParseAddr("fd00:5::7")}
	observer, err := bpf.Load(bpf.Options{})
	must(t, err)
	defer observer.Close()
	for n, veth := range pods {
		attachment, err := observer.Attach(veth.Index, bpf.AttachOptions{Generation: uint32(n + 1)})
		must(t, err)
		defer attachment.Close()
	}
	sender, err := probe.OpenSocket()
	must(t, err)
	defer sender.Close()
	answers := make(chan bpf.Record, 64)
	go func() {
		for {
			var record bpf.Record
			if observer.Read(&record) != nil {
				return
			}
			if record.Kind == bpf.Answer {
				answers <- record
			}
		}
	}()
	probeAll := func() {
		for _, ip := range ips {
			for _, veth := range pods {
				deadline := time.After(time.Minute)
				for answered := false; !answered; {
					must(t, sender.Send(probe.Target{Ifindex: veth.Index, IP: ip, Source: [6]byte{2, 0xd0, 1, 2, 3, 4}}))
					select {
					case record := <-answers:
						answered = record.IP == ip && record.Ifindex == uint32(veth.Index)
					case <-time.After(100 * time.Millisecond): // the pod may not be up yet
					case <-deadline:
						t.Fatalf("no answer for %s on %s", ip, veth.Name)
					}
				}
			}
		}
	}
	probeAll() // until all are up: what happens to links before that may cost the bridge its entries
	established := net.HardwareAddr{2, 1, 1, 1, 1, 1}
	for _, ip := range ips {
		must(t, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: bridge.Index, IP: ip.AsSlice(), HardwareAddr: established, State: netlink.NUD_STALE,
		}))
	}
	probeAll()
	neighbours, err := netlink.NeighList(bridge.Index, netlink.FAMILY_ALL)
	must(t, err)
	checked := 0
	for _, neighbour := range neighbours {
		ip, _ := netip.AddrFromSlice(neighbour.IP)
		if ip = ip.Unmap(); ip != ips[0] && ip != ips[1] {
			continue
		}
		checked++
		if !bytes.Equal(neighbour.HardwareAddr, established) {
			t.Errorf("the host's neighbour entry for %s moved to %s", ip, neighbour.HardwareAddr)
		}
	}
	if checked != len(ips) {
		t.Errorf("%d neighbour entries checked, want %d", checked, len(ips))
	}
}

// The observer records the answers to all probes that are sent on an interface.
func TestNoAnswerIsLost(t *testing.T) {
	testneeds.Root(t)
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "many"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
	must(t, netlink.LinkAdd(veth))
	must(t, netlink.LinkSetUp(veth))
	address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 6, 0, byte(n)}) }
	const addresses = 256 // limits.bindingsPerInterface
	must(t, netns.Do(pod.Open(t), func() error {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		for n := range addresses {
			parsed, err := netlink.ParseAddr(address(n).String() + "/16")
			must(t, err)
			must(t, netlink.AddrAdd(eth0, parsed))
		}
		return netlink.LinkSetUp(eth0)
	}))
	source := probe.Source("node", "boot")
	observer, err := bpf.Load(bpf.Options{SolicitMAC: source})
	must(t, err)
	defer observer.Close()
	attachment, err := observer.Attach(veth.Index, bpf.AttachOptions{Generation: 1})
	must(t, err)
	defer attachment.Close()
	sender, err := probe.OpenSocket()
	must(t, err)
	defer sender.Close()
	ref, holder := detector.Interface{Ifindex: uint32(veth.Index), Generation: 1}, detector.HolderID{Node: "n/", Netns: 1}
	prober := probe.New(probe.Options{
		Log: slog.New(slog.DiscardHandler), Sender: sender, Source: source, Bindings: detector.New(detector.Options{}),
		Budget:   probe.NewBudget(10_000, 100),
		Solicits: func(string) bool { return true }, Rescan: func(uint32) {},
	})
	prober.Follow(probe.Interface{Ref: ref, Holder: holder, Link: &links.Interface{Index: veth.Index, State: links.Attached, Up: true}})
	answered := make(chan struct{}, 4*addresses)
	go func() {
		var record bpf.Record
		for observer.Read(&record) == nil {
			if record.Kind == bpf.Answer {
				answered <- struct{}{}
			}
		}
	}()
	deadline := time.After(time.Minute)
	for up := false; !up; {
		must(t, sender.Send(probe.Target{Ifindex: veth.Index, IP: address(1)}))
		select {
		case <-answered:
			up = true
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatal("the pod does not answer")
		}
	}
	sent, answers := 0, 0
	for n := range 4 * addresses {
		s := detector.Probe{
			Key: detector.Key{Network: "default", IP: address(n % addresses)}, Holder: holder, Interface: ref, Purpose: detector.Verify,
		}
		if prober.Probe(s, bpf.VLAN{}, false, time.Now()) == (detector.ProbeRefusal{}) {
			sent++
		}
	}
	for answers < sent {
		select {
		case <-answered:
			answers++
		case <-deadline:
			counters, err := observer.Counters(veth.Index)
			t.Fatalf("%d probes and %d recorded answers; counters %+v, %v", sent, answers, counters, err)
		}
	}
	if sent < addresses {
		t.Errorf("%d probes at once, want %d at least", sent, addresses)
	}
}

func TestSendOnAVanishedInterface(t *testing.T) {
	testneeds.Root(t)
	sender, err := probe.OpenSocket()
	must(t, err)
	defer sender.Close()
	err = sender.Send(probe.Target{Ifindex: 999999, IP: netip.MustParseAddr("10.0.0.1")})
	if !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
		t.Errorf("error %v, want ENXIO or ENODEV", err)
	}
}
