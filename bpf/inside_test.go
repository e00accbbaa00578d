package bpf

import (
	"bytes"
	"errors"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideKind is a device that has no end on the node.
type insideKind struct {
	name string
	link func(netlink.LinkAttrs) netlink.Link
	// ownMAC says that it has a MAC other than its parent.
	ownMAC bool
	// routes says that it drops, behind the egress chain, what it has no route for.
	routes bool
}

// insideIndex is the ifindex of each of these devices in its netns. Until Linux 6.18 a device with a chosen ifindex can
// be made in another netns only if this one has none with it.
const insideIndex = 77

func insideKinds() []insideKind {
	macvlan := func(mode netlink.MacvlanMode) func(netlink.LinkAttrs) netlink.Link {
		return func(attrs netlink.LinkAttrs) netlink.Link { return &netlink.Macvlan{LinkAttrs: attrs, Mode: mode} }
	}
	ipvlan := func(mode netlink.IPVlanMode) func(netlink.LinkAttrs) netlink.Link {
		return func(attrs netlink.LinkAttrs) netlink.Link { return &netlink.IPVlan{LinkAttrs: attrs, Mode: mode} }
	}
	kinds := []insideKind{
		{"macvlan bridge", macvlan(netlink.MACVLAN_MODE_BRIDGE), true, false},
		{"macvlan private", macvlan(netlink.MACVLAN_MODE_PRIVATE), true, false},
		{"macvlan passthru", macvlan(netlink.MACVLAN_MODE_PASSTHRU), false, false},
	}
	if hasIPVlan {
		kinds = append(
			kinds,
			insideKind{"ipvlan l2", ipvlan(netlink.IPVLAN_MODE_L2), false, false},
			insideKind{"ipvlan l3", ipvlan(netlink.IPVLAN_MODE_L3), false, true},
			insideKind{"ipvlan l3s", ipvlan(netlink.IPVLAN_MODE_L3S), false, true},
		)
	}
	return kinds
}

// everywhere runs a test in each mode with a veth, and inside a pod with each kind of device.
func everywhere(t *testing.T, test func(*testing.T, *Observer, *pod)) {
	eachMode(t, func(t *testing.T, o *Observer) { test(t, o, newPod(t, "host0")) })
	eachInside(t, test)
}

// eachInside runs a test with each kind of device in a pod. On a kernel before 6.6 tcx has to be refused.
func eachInside(t *testing.T, test func(*testing.T, *Observer, *pod)) {
	for _, kind := range insideKinds() {
		t.Run("inside "+kind.name, func(t *testing.T) {
			if !hasTCX(t) {
				wantTCXRefused(t)
				return
			}
			isolate(t)
			test(t, load(t, Options{Mode: TCX, Constants: limits{Refresh: time.Hour}.constants()}), newInsidePod(t, kind))
		})
	}
}

// newInsidePod is newPod with a device that has its parent here, beyond which there is a gateway.
func newInsidePod(t *testing.T, kind insideKind) *pod {
	t.Helper()
	p := &pod{namespace: newNamespace(t), gateway: newNamespace(t), kind: kind}
	wire := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "parent0"}, PeerName: "wire0", PeerNamespace: netlink.NsFd(p.gateway.file.Fd()),
	}
	if !kind.ownMAC {
		wire.HardwareAddr = net.HardwareAddr(podMAC[:])
	}
	if err := netlink.LinkAdd(wire); err != nil {
		t.Fatal(err)
	}
	var host netlink.Link
	p.gateway.do(t, func() error {
		host = up(t, "wire0")
		return addAddress(host, hostIP)
	})
	parent := up(t, "parent0")
	if err := addAddress(parent, "10.0.0.253"); err != nil { // ipvlan in L3 mode routes here
		t.Fatal(err)
	}
	p.addDevice(t, parent.Attrs().Index)
	p.setUp(t, host.Attrs().HardwareAddr)
	p.ifindex = 1<<31 + p.peer
	return p
}

// addDevice adds eth0 to the pod.
func (p *pod) addDevice(t *testing.T, parent int) {
	t.Helper()
	attrs := netlink.LinkAttrs{Name: "eth0", Index: insideIndex, ParentIndex: parent, Namespace: netlink.NsFd(p.file.Fd())}
	if p.kind.ownMAC {
		attrs.HardwareAddr = net.HardwareAddr(podMAC[:])
	}
	if err := netlink.LinkAdd(p.kind.link(attrs)); err != nil {
		t.Fatalf("add %s: %v", p.kind.name, err)
	}
}

// TestInsideNumbers: devices with one ifindex in two netns, which is also one of this netns, are distinct everywhere, from the first packet on.
func TestInsideNumbers(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		other := *p
		other.namespace, other.kind = newNamespace(t), insideKinds()[0]
		other.addDevice(t, addVeth(t, "parent1"))
		other.setUp(t, podMAC[:])
		other.ifindex = math.MaxUint32
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "same0", Index: p.peer}, PeerName: "same1"}); err != nil {
			t.Fatal(err)
		}
		attach(t, o, p.peer, 3)

		at := map[*pod]*Attachment{p: p.attach(t, o, 1), &other: other.attach(t, o, 2)}
		generation := map[*pod]uint32{p: 1, &other: 2}
		check := func(step string) {
			t.Helper()
			for _, from := range []*pod{p, &other} {
				from.send(t, ipv4Frame("10.0.0.7"))
				got := waitFor(t, o, data("10.0.0.7")...)[0]
				if got.Ifindex != uint32(from.ifindex) || got.Generation != generation[from] {
					t.Errorf("%s: recorded at %d generation %d, want %d and %d", step, got.Ifindex, got.Generation, from.ifindex, generation[from])
				}
				from.send(t, ipv4Frame("10.0.0.7"))
				wantRecords(t, o, step+", again")
			}
		}
		check("attached")
		all := []Address{
			{Ifindex: uint32(p.ifindex), Generation: 1, IP: addr("10.0.0.7")},
			{Ifindex: uint32(other.ifindex), Generation: 2, IP: addr("10.0.0.7")},
		}
		if err := o.Forget(all); err != nil {
			t.Fatal(err)
		}
		check("forgotten")

		// Answers have a bucket for each.
		for range 500 {
			p.send(t, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.8", "10.0.0.2")))
		}
		poll(t, func() bool { records(t, o); return counters(t, o, p.ifindex).RefusedAnswers > 0 })
		if got := counters(t, o, other.ifindex); got != (Counters{}) {
			t.Errorf("counted of the other device: %+v", got)
		}

		if err := at[p].Close(); err != nil {
			t.Fatal(err)
		}
		before := count(t, o)
		if err := o.Prune(); err != nil || before-count(t, o) != 1 {
			t.Errorf("pruned %d, %v, want the address of the closed one", before-count(t, o), err)
		}
		p.send(t, ipv4Frame("10.0.0.7"))
		wantRecords(t, o, "closed")
		wantState(t, at[&other], "the other", Attached)
		other.send(t, ipv4Frame("10.0.0.9"))
		waitFor(t, o, data("10.0.0.9")...)
	})
}

// TestInsideAnswers: the kernel of the pod answers for its address, as it does when it is probed.
func TestInsideAnswers(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		if p.kind.routes {
			return // in L3 mode there is no ARP
		}
		p.attach(t, o, 1)
		gateway := &pod{namespace: p.gateway}
		gateway.do(t, func() error {
			gateway.peer = mustIndex(t, "wire0")
			return nil
		})
		gateway.open(t)
		gateway.send(t, frame(otherMAC, typeARP, arp(1, otherMAC, hostIP, podIP)))
		waitFor(t, o, said{Kind: Answer, IP: addr(podIP), MAC: podMAC})
	})
}

func mustIndex(t *testing.T, name string) int {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

// TestInsideOrder: programs before ours, behind it, and away again. Those behind it see each packet once, and their verdict counts.
func TestInsideOrder(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		const packets = 20
		p.do(t, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0o644) })
		attachTCX := func(f *foreign, anchor link.Anchor) (attached link.Link) {
			t.Helper()
			p.do(t, func() (err error) {
				attached, err = link.AttachTCX(link.TCXOptions{Interface: p.peer, Program: f.program, Attach: ebpf.AttachTCXEgress, Anchor: anchor})
				return err
			})
			t.Cleanup(func() { _ = attached.Close() })
			return attached
		}
		first, second, dropper := newForeign(t, next), newForeign(t, pass), newForeign(t, drop)
		attachTCX(first, link.Head())
		// Both kinds of chain go on behind ours: tcx, then tc.
		filter := second.filter(p.peer, 7)
		filter.Parent = netlink.HANDLE_MIN_EGRESS
		p.do(t, func() error { return errors.Join(createClsact(p.peer), netlink.FilterAdd(filter)) })
		a := p.attach(t, o, 1)
		wantState(t, a, "the later is first", Attached)

		listener := p.listen(t)
		sender := p.dial(t, listener)
		for range packets {
			if _, err := sender.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		for range packets {
			if _, err := listener.Read(make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, o, data(podIP)...)
		if got := [2]uint64{first.count(t), second.count(t)}; got != [2]uint64{packets, packets} {
			t.Errorf("the programs behind ours saw %d packets, want %d each", got, packets)
		}

		shadow := attachTCX(dropper, link.Head())
		refused := func(ip string) {
			t.Helper()
			// The sender is told that the packet is dropped.
			if _, err := p.socket.Write(ipv4Frame(ip)); !errors.Is(err, unix.ENOBUFS) {
				t.Errorf("sending what is dropped: %v", err)
			}
		}
		refused("10.0.0.8")
		wantRecords(t, o, "swallowed before us")
		wantState(t, a, "behind another, which nobody looks for", Attached)
		if err := shadow.Close(); err != nil {
			t.Fatal(err)
		}
		attachTCX(dropper, link.Tail())
		refused("10.0.0.9")
		waitFor(t, o, data("10.0.0.9")...)
		if n := dropper.count(t); n != 2 {
			t.Errorf("dropped %d packets, want 2", n)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		p.do(t, func() error {
			all, err := chainPrograms(p.peer, ebpf.AttachTCXEgress)
			if len(all) != 2 {
				t.Errorf("%d programs are left beside two of the test", len(all)-2)
			}
			return err
		})
	})
}

// TestInsideTag: under egress a tag of a VLAN device is in the metadata of the packet. Here a program pushes it.
func TestInsideTag(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		p.attach(t, o, 1)
		pusher := newProgram(t, ebpf.SchedCLS,
			asm.Mov.Imm(asm.R2, 0x0081), // as on the wire
			asm.Mov.Imm(asm.R3, 7),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, next),
			asm.Return(),
		)
		p.do(t, func() error {
			attached, err := link.AttachTCX(link.TCXOptions{Interface: p.peer, Program: pusher, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
			t.Cleanup(func() { _ = attached.Close() })
			return err
		})
		capture(t, o, Address{Ifindex: uint32(p.ifindex), Generation: 1, IP: addr("10.0.0.7"), VLAN: VLAN{Outer: 7}})
		p.send(t, ipv4Frame("10.0.0.7"))
		waitFor(t, o, dataVLAN("10.0.0.7", VLAN{Outer: 7})...)
		want := frame(podMAC, typeIPv4, ipv4("10.0.0.7", 0), [2]int{typeVLAN, 7})
		if got := frames(t, o); len(got) != 1 || !bytes.Equal(got[0].Data, want) {
			t.Errorf("captured %+v, want\n%x", got, want)
		}
		p.send(t, frame(podMAC, typeIPv4, ipv4("10.0.0.7", 0), [2]int{typeVLAN, 9}))
		waitFor(t, o, dataVLAN("10.0.0.7", VLAN{7, 9})...)
	})
}
