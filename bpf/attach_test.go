package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var modes = []Mode{TCX, TC, XDP}

// eachMode runs a test in each mode, in a netns of its own. On a kernel before 6.6 tcx has to be refused.
func eachMode(t *testing.T, test func(t *testing.T, o *Observer)) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			if mode == TCX && !hasTCX(t) {
				wantTCXRefused(t)
				return
			}
			isolate(t)
			test(t, load(t, Options{Mode: mode, Constants: limits{Refresh: time.Hour}.constants()}))
		})
	}
}

// hasTCX reports whether this kernel must have tcx, by its version: the tests also test the probe.
func hasTCX(t *testing.T) bool {
	t.Helper()
	version, err := features.LinuxVersionCode()
	if err != nil {
		t.Fatal(err)
	}
	return version >= 6<<16|6<<8
}

func wantTCXRefused(t *testing.T) {
	t.Helper()
	o, err := Load(Options{Mode: TCX})
	if err == nil {
		_ = o.Close()
	}
	if !errors.Is(err, ebpf.ErrNotSupported) || !strings.Contains(err.Error(), "attach mode tcx needs Linux 6.6, this is "+kernelRelease()) {
		t.Errorf("loading for tcx on Linux %s gave %v", kernelRelease(), err)
	}
}

func attach(t *testing.T, o *Observer, ifindex int, generation uint32) *Attachment {
	t.Helper()
	a, err := o.Attach(ifindex, AttachOptions{Generation: generation, CreateQdisc: true, Netkit: byNetkit})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantState(t *testing.T, a *Attachment, step string, want State) {
	t.Helper()
	if got, err := a.State(nil); err != nil || got != want {
		t.Errorf("%s: %v, %v, want %v", step, got, err, want)
	}
}

// waitFor collects records until those wanted have come, each once, and returns them in their order.
func waitFor(t *testing.T, o *Observer, want ...said) []Record {
	t.Helper()
	o.records.SetDeadline(time.Now().Add(time.Minute))
	var got []Record
	for len(got) < len(want) {
		var record Record
		if err := o.Read(&record); err != nil {
			t.Fatalf("after %+v: %v", summary(got), err)
		}
		got = append(got, record)
	}
	if diff := diff(want, summary(got)); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
	return got
}

// TestRealFrames sends frames through real devices. At a veth a tag arrives in the metadata of the packet under
// tcx and tc, in the packet under XDP.
func TestRealFrames(t *testing.T) {
	everyWay(t, func(t *testing.T, o *Observer, p *pod) {
		p.attach(t, o, 42)
		v4 := ipv4("10.0.0.7", 0)
		for _, c := range []struct {
			frame []byte
			want  []said
		}{
			{frame(podMAC, typeIPv4, v4), data("10.0.0.7")},
			{frame(podMAC, typeIPv4, v4, [2]int{typeVLAN, 0x2007}), dataVLAN("10.0.0.7", VLAN{Outer: 7})},
			{frame(podMAC, typeIPv4, v4, [2]int{typeQinQ, 9}), dataVLAN("10.0.0.7", VLAN{Outer: 9})},
			{frame(podMAC, typeIPv4, v4, [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}), dataVLAN("10.0.0.7", VLAN{100, 7})},
			{frame(podMAC, typeIPv4, ipv4("10.0.0.8", 0), [2]int{typeVLAN, 0}), data("10.0.0.8")},
			{frame(podMAC, typeIPv4, ipv4("10.0.0.9", 0), [2]int{typeVLAN, 0}, [2]int{typeVLAN, 7}), dataVLAN("10.0.0.9", VLAN{Outer: 7})},
			{frame(podMAC, typeIPv4, ipv4("10.0.0.10", 0), [2]int{typeQinQ, 1}, [2]int{typeVLAN, 2}, [2]int{typeVLAN, 3}), nil},
			{frame(podMAC, typeARP, arp(2, otherMAC, "10.0.0.7", "10.0.0.2"), [2]int{typeVLAN, 7}), []said{{Answer, addr("10.0.0.7"), otherMAC, VLAN{Outer: 7}}}},
			{frame(podMAC, typeIPv6, ipv6("fe80::1", icmpv6, 255, neighbour(solicited, 0, "2001:db8::9")), [2]int{typeVLAN, 7}), []said{{Answer, addr("2001:db8::9"), podMAC, VLAN{Outer: 7}}}},
			{ipv6Frame("2001:db8::1"), data("2001:db8::1")},
			{ipv4Frame("10.0.0.11")[:33], nil},
			{ipv6Frame("2001:db8::2")[:53], nil},
			{ipv6Frame("2001:db8::3"), data("2001:db8::3")},
		} {
			p.send(t, c.frame)
			for _, record := range waitFor(t, o, c.want...) {
				if record.Ifindex != uint32(p.ifindex) || record.Generation != 42 {
					t.Errorf("recorded at interface %d generation %d, want %d and 42", record.Ifindex, record.Generation, p.ifindex)
				}
			}
		}
	})
}

// TestRingFrames sends frames as a packet socket with a TX ring does: of their headers only the first
// 14 bytes are linear when they arrive.
func TestRingFrames(t *testing.T) {
	everyWay(t, func(t *testing.T, o *Observer, p *pod) {
		p.attach(t, o, 1)
		global := addr("2001:db8::1")
		for _, c := range []struct {
			frame []byte
			want  []said
		}{
			{join(ipv4Frame("10.0.0.7"), make([]byte, 1000)), data("10.0.0.7")},
			{ipv6Frame("2001:db8::7"), data("2001:db8::7")},
			{frame(podMAC, typeARP, arp(2, otherMAC, "10.0.0.7", "10.0.0.2")), []said{{Kind: Answer, IP: addr("10.0.0.7"), MAC: otherMAC}}},
			{
				frame(podMAC, typeIPv6, ipv6("2001:db8::1", destOption, 255, extension(icmpv6, 64),
					neighbour(solicitation, 0, "2001:db8::9", option(14, 16), linkOption(1)))),
				[]said{{Kind: Announced, IP: global, MAC: podMAC}, {Kind: Data, IP: global, MAC: podMAC}},
			},
			{
				frame(podMAC, typeIPv4, ipv4("10.0.0.7", 0), [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}),
				dataVLAN("10.0.0.7", VLAN{100, 7}),
			},
		} {
			p.sendByRing(t, c.frame)
			waitFor(t, o, c.want...)
		}
	})
}

// sendByRing sends one frame through a TX ring (Documentation/networking/packet_mmap.rst).
func (p *pod) sendByRing(t *testing.T, frame []byte) {
	t.Helper()
	const size, headerSize, sendRequest = 4096, 32, 1
	var socket int
	p.do(t, func() (err error) {
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	defer func() { _ = unix.Close(socket) }()
	if err := unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTpacketReq(socket, unix.SOL_PACKET, unix.PACKET_TX_RING, &unix.TpacketReq{
		Block_size: size, Block_nr: 1, Frame_size: size, Frame_nr: 1,
	}); err != nil {
		t.Fatal(err)
	}
	ring, err := unix.Mmap(socket, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(ring) }()
	// struct tpacket2_hdr begins with status and length.
	ring[4], ring[5] = byte(len(frame)), byte(len(frame)>>8)
	copy(ring[headerSize:], frame)
	ring[0] = sendRequest
	to := &unix.SockaddrLinklayer{Ifindex: p.peer, Protocol: 0x0300, Halen: 6}
	if err := unix.Sendto(socket, nil, 0, to); err != nil && (!p.kind.routes || !errors.Is(err, unix.ENOBUFS)) {
		t.Fatal(err)
	}
}

// TestNoPacketLost counts datagrams from a pod to the host while programs are attached and detached.
func TestNoPacketLost(t *testing.T) {
	everywhere(t, func(t *testing.T, o *Observer, p *pod) {
		const rounds = 10
		listener := p.listen(t)
		sender := p.dial(t, listener)

		for round := range rounds {
			a := p.attach(t, o, uint32(round))
			wantState(t, a, "attached", Attached)
			exchange(t, sender, listener, nil)
			got := waitFor(t, o, data(podIP)...)
			if got[0].Generation != uint32(round) {
				t.Errorf("recorded generation %d, want %d", got[0].Generation, round)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			exchange(t, sender, listener, nil)
			wantRecords(t, o, "detached")
		}
	})
}

// exchange sends 200 datagrams from a pod and waits for each. It calls in half way.
func exchange(t *testing.T, sender net.Conn, listener *net.UDPConn, half func()) {
	t.Helper()
	const datagrams = 200
	buffer := make([]byte, 64)
	for i := range datagrams {
		if i == datagrams/2 && half != nil {
			half()
		}
		want := strconv.Itoa(i)
		if _, err := sender.Write([]byte(want)); err != nil {
			t.Fatal(err)
		}
		_ = listener.SetReadDeadline(time.Now().Add(time.Minute))
		n, from, err := listener.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatalf("datagram %s is lost: %v", want, err)
		}
		if got := string(buffer[:n]); got != want || from.Addr().String() != podIP {
			t.Fatalf("received %q from %v, want %q", got, from, want)
		}
	}
}

// TestGone: interfaces that do not exist, or are deleted.
func TestGone(t *testing.T) {
	eachMode(t, func(t *testing.T, o *Observer) {
		for _, ifindex := range []int{-1, 0, 1 << 30, 1<<31 + 7, math.MaxUint32} {
			if _, err := o.Attach(ifindex, AttachOptions{CreateQdisc: true}); !errors.Is(err, ErrGone) {
				t.Errorf("attaching to interface %d gave %v", ifindex, err)
			}
		}
		ifindex := addVeth(t, "gone0")
		a := attach(t, o, ifindex, 1)
		if err := netlink.LinkDel(byIndex(ifindex)); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "without its interface", Detached)

		// The ifindex is reused before the first attachment is closed.
		if err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "back0", Index: ifindex}, PeerName: "back1",
		}); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "on another interface", Detached)
		b := attach(t, o, ifindex, 2)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		wantState(t, b, "after closing the first", Attached)
		if _, err := o.Counters(ifindex); err != nil {
			t.Error(err)
		}
		if err := netlink.LinkDel(byIndex(ifindex)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		wantState(t, b, "closed", Detached)
		if _, err := o.Counters(ifindex); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("counters after Close: %v", err)
		}
	})
}

func TestTooManyInterfaces(t *testing.T) {
	isolate(t)
	o := load(t, Options{Mode: TC, MaxInterfaces: 2})
	ifindexes := []int{addVeth(t, "a"), addVeth(t, "b"), addVeth(t, "c")}
	first := attach(t, o, ifindexes[0], 1)
	attach(t, o, ifindexes[1], 1)
	_, err := o.Attach(ifindexes[2], AttachOptions{CreateQdisc: true})
	if err == nil || !strings.Contains(err.Error(), "raise MaxInterfaces") {
		t.Fatalf("the third gave %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	attach(t, o, ifindexes[2], 1)
}

// TestMain also runs the child process of TestKilled.
func TestMain(m *testing.M) {
	if target := os.Getenv("DUPIP_TEST_PREDECESSOR"); target != "" {
		if err := predecessor(target); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// predecessor attaches, prints that, and waits to be killed, or for the end of its input, which comes with the test's end. The
// target is a mode, an ifindex and, for a device in another netns, that and its ifindex there.
func predecessor(target string) error {
	var mode, netns string
	var ifindex, inside int
	if n, err := fmt.Sscan(target, &mode, &ifindex, &netns, &inside); n < 2 {
		return err
	}
	opts := AttachOptions{CreateQdisc: true}
	if netns != "" {
		file, err := os.Open(netns)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		opts.Inside = insideOf(file, inside)
	}
	o, err := Load(Options{Mode: Mode(mode)})
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // also keeps it until then: the garbage collector closes links that nothing refers to
	if _, err := o.Attach(ifindex, opts); err != nil {
		return err
	}
	fmt.Println("attached")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestKilled: no packet is lost over SIGKILL, and a successor can attach afterwards; in TC mode after Sweep. In XDP mode the test
// sends nothing until the process has ended: when the kernel detaches an XDP program from a veth, it frees the packets that wait in
// the queue of the veth (veth_napi_del_range, drivers/net/veth.c).
func TestKilled(t *testing.T) {
	everywhere(t, func(t *testing.T, o *Observer, p *pod) {
		listener := p.listen(t)
		sender := p.dial(t, listener)
		target := fmt.Sprint(o.Mode(), " ", p.ifindex)
		if p.gateway != nil {
			target += fmt.Sprintf(" /proc/%d/fd/%d %d", os.Getpid(), p.file.Fd(), p.peer)
		}
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), "DUPIP_TEST_PREDECESSOR="+target)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := child.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "attached\n" {
			t.Fatalf("the predecessor says %q, %v", line, err)
		}
		if o.Mode() != TCX { // there both can be attached
			if _, err := o.Attach(p.ifindex, AttachOptions{}); !errors.Is(err, ErrBusy) {
				t.Fatalf("attaching beside the predecessor gave %v", err)
			}
		}
		exchange(t, sender, listener, func() {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if o.Mode() == XDP {
				_ = child.Wait()
			}
		})
		_ = child.Wait() // returns the signal
		if p.gateway != nil {
			poll(t, func() (none bool) {
				p.do(t, func() error {
					left, err := chainPrograms(p.peer, ebpf.AttachTCXEgress)
					none = len(left) == 0
					return err
				})
				return none
			})
		}

		want := 0
		if o.Mode() == TC {
			want = 1
		}
		if removed, err := Sweep(); err != nil || removed != want {
			t.Errorf("swept %d, %v, want %d", removed, err, want)
		}
		if removed, err := Sweep(); err != nil || removed != 0 {
			t.Errorf("swept %d more, %v", removed, err)
		}
		var a *Attachment
		for deadline := time.Now().Add(time.Minute); ; {
			opts := p.options(1)
			opts.CreateQdisc = false
			if a, err = o.Attach(p.ifindex, opts); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("attach after the predecessor: %v", err)
			}
		}
		p.send(t, ipv4Frame("10.0.0.7"))
		waitFor(t, o, data("10.0.0.7")...)
		wantState(t, a, "after the predecessor", Attached)
	})
}
