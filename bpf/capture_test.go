package bpf

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/testneeds"
)

// frames takes all frames that are in the ring.
func frames(tb testing.TB, o *Observer) (all []Frame) {
	tb.Helper()
	o.frames.SetDeadline(time.Now())
	for {
		var f Frame
		err := o.ReadFrame(&f)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, f)
	}
}

func capture(tb testing.TB, o *Observer, addresses ...Address) {
	tb.Helper()
	if err := o.Capture(addresses); err != nil {
		tb.Fatal(err)
	}
}

func release(tb testing.TB, o *Observer, addresses ...Address) {
	tb.Helper()
	if err := o.Release(addresses); err != nil {
		tb.Fatal(err)
	}
}

// us is where probes come from.
var us = mac{2, 0xd0, 1, 2, 3, 4}

// bothPrograms runs a test with the program for tc and the one for XDP.
func bothPrograms(t *testing.T, test func(*testing.T, *Observer)) {
	for _, mode := range []Mode{TC, XDP} {
		t.Run(string(mode), func(t *testing.T) {
			o := load(t, Options{Mode: mode, SolicitMAC: [3]byte(us[:3])})
			enter(t, o, loopback, 7)
			test(t, o)
		})
	}
}

// TestCapture: of an address that is captured, and of no other, packets of ARP and NDP are read whole and all others up to the
// header of layer 4.
func TestCapture(t *testing.T) {
	const secret = "the payload of a pod, which nobody may read"
	payload := bytes.Repeat([]byte(secret), 20)
	with := func(packet []byte) []byte { return join(packet, payload) }
	// It is longer than the headers of other packets may be.
	na := frame(podMAC, typeIPv6, ipv6("fe80::1", icmpv6, 255, neighbour(solicited, 0, "2001:db8::1", linkOption(2), option(14, 136))))
	answer := frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9"))
	gratuitous := frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.1"))
	tcp := join(make([]byte, 12), []byte{8 << 4}, make([]byte, 19)) // 12 bytes of options
	tcp6 := frame(podMAC, typeIPv6, ipv6("2001:db8::1", 6, 64, tcp, payload))
	bothPrograms(t, func(t *testing.T, o *Observer) {
		all := []struct {
			name  string
			frame []byte
			kind  FrameKind
			kept  int // 0: it is not captured
		}{
			{"answer", answer, OtherAnswer, len(answer)},
			{"answer with a tail", with(answer), OtherAnswer, len(answer)},
			{"gratuitous", gratuitous, Announcement, len(gratuitous)},
			{"the pod's own probe", frame(podMAC, typeARP, arp(1, podMAC, "0.0.0.0", "10.0.0.1")), Announcement, 42},
			{"request", frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.9")), Announcement, 42},
			{"udp", with(ipv4Frame("10.0.0.1")), Ordinary, 14 + 20 + 8},
			{"udp with options", with(frame(podMAC, typeIPv4, ipv4("10.0.0.1", 40))), Ordinary, 14 + 60 + 8},
			{"tcp with options", tcp6, Ordinary, 14 + 40 + 32},
			{"advertisement", na, OtherAnswer, len(na)},
			{"echo", frame(podMAC, typeIPv6, ipv6("2001:db8::1", icmpv6, 64, []byte{128, 0, 0, 0, 0, 1, 0, 1}, payload)), Ordinary, 14 + 40 + 8},
			{"another address", with(ipv4Frame("10.0.0.2")), 0, 0},
			{"an answer for another", frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.2", "10.0.0.1")), 0, 0},
			{"to the address", frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.2", "10.0.0.1")), 0, 0},
			{"another VLAN", frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeVLAN, 8}), 0, 0},
			{"tagged", frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.5", "10.0.0.9"), [2]int{typeVLAN, 0x2007}), OtherAnswer, 46},
			{"two tags", with(frame(podMAC, typeIPv4, ipv4("10.0.0.6", 0), [2]int{typeQinQ, 9}, [2]int{typeVLAN, 7})), Ordinary, 8 + 14 + 20 + 8},
		}
		send := func() {
			for _, c := range all {
				run(t, o, loopback, c.frame)
			}
		}
		send()
		if got := frames(t, o); got != nil {
			t.Fatalf("%d frames before any is captured", len(got))
		}
		captured := []Address{
			{Ifindex: loopback, Generation: 7, IP: addr("10.0.0.1")},
			{Ifindex: loopback, Generation: 7, IP: addr("2001:db8::1")},
			{Ifindex: loopback, Generation: 7, IP: addr("10.0.0.5"), VLAN: VLAN{Outer: 7}},
			{Ifindex: loopback, Generation: 7, IP: addr("10.0.0.6"), VLAN: VLAN{9, 7}},
		}
		capture(t, o, captured...)
		capture(t, o, captured...) // a second time it changes nothing
		for _, c := range all {
			before := monotonic(t)
			run(t, o, loopback, c.frame)
			after := monotonic(t)
			got := frames(t, o)
			if c.kept == 0 {
				if got != nil {
					t.Errorf("%s: captured %+v", c.name, got)
				}
				continue
			}
			if len(got) != 1 {
				t.Errorf("%s: %d frames", c.name, len(got))
				continue
			}
			f := got[0]
			if !bytes.Equal(f.Data, c.frame[:c.kept]) || f.Length != len(c.frame) || f.Kind != c.kind || f.Generation != 7 || f.Ifindex != loopback {
				t.Errorf("%s: %v of %d bytes at interface %d generation %d with\n%x, want %v of %d bytes with\n%x",
					c.name, f.Kind, f.Length, f.Ifindex, f.Generation, f.Data, c.kind, len(c.frame), c.frame[:c.kept])
			}
			if f.Time < before || f.Time > after {
				t.Errorf("%s: at %v, want from %v to %v", c.name, f.Time, before, after)
			}
			if bytes.Contains(f.Data, []byte(secret[:8])) {
				t.Errorf("%s: has payload: %q", c.name, f.Data)
			}
		}
		release(t, o, captured...)
		release(t, o, captured...)
		var capturing uint32
		if err := o.collection.Variables["capturing"].Get(&capturing); err != nil || capturing != 0 {
			t.Errorf("%d are captured after all were released, %v", capturing, err)
		}
		if send(); frames(t, o) != nil {
			t.Error("captured after the release")
		}
	})
}

// TestCaptureBudget: each kind of packet has its share, so that neither a pod that talks a lot nor others who ask it use up that of
// the answers to us.
func TestCaptureBudget(t *testing.T) {
	bothPrograms(t, func(t *testing.T, o *Observer) {
		one := Address{Ifindex: loopback, Generation: 7, IP: addr("10.0.0.1")}
		count := func(packet []byte) int {
			for range 2 * MaxFrames {
				run(t, o, loopback, packet)
			}
			return len(frames(t, o))
		}
		toUs := frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9"))
		copy(toUs, us[:])
		capture(t, o, one)
		for _, c := range []struct {
			name   string
			packet []byte
			want   int
		}{
			{"data", ipv4Frame("10.0.0.1"), FramesOfKind},
			{"requests", frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.9")), FramesOfKind},
			{"gratuitous, of the same share", frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.1")), 0},
			{"answers to others", frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9")), FramesOfKind},
			{"answers to us", toUs, FramesOfKind},
			{"more data", ipv4Frame("10.0.0.1"), 0},
		} {
			if got := count(c.packet); got != c.want {
				t.Errorf("%s: %d frames, want %d", c.name, got, c.want)
			}
		}
		release(t, o, one)
		capture(t, o, one)
		if got := count(ipv4Frame("10.0.0.1")); got != FramesOfKind {
			t.Errorf("%d frames after a new beginning, want %d", got, FramesOfKind)
		}
		// The program ignores interfaces that it is not attached to.
		release(t, o, one)
		capture(t, o, one)
		if err := o.interfaces.Delete(uint32(loopback)); err != nil {
			t.Fatal(err)
		}
		if got := count(ipv4Frame("10.0.0.1")); got != 0 {
			t.Errorf("%d frames of an interface that is gone", got)
		}
	})
}

// TestCaptureFullRing: what finds no room is counted, and comes later; the packets pass.
func TestCaptureFullRing(t *testing.T) {
	bothPrograms(t, func(t *testing.T, o *Observer) {
		var all []Address
		for ip := addr("10.0.1.0"); len(all) < 40; ip = ip.Next() {
			all = append(all, Address{Ifindex: loopback, Generation: 7, IP: ip})
		}
		capture(t, o, all...)
		send := func() {
			for _, a := range all {
				answer := frame(podMAC, typeARP, arp(2, podMAC, a.IP.String(), "10.0.0.9"))
				for range FramesOfKind {
					run(t, o, loopback, answer)
				}
			}
		}
		send()
		lost, got := o.LostFrames(all), len(frames(t, o))
		if lost == 0 || got == 0 || lost+got != len(all)*FramesOfKind {
			t.Fatalf("%d frames are lost and %d read, want both and %d together", lost, got, len(all)*FramesOfKind)
		}
		if send(); got+len(frames(t, o)) != len(all)*FramesOfKind {
			t.Errorf("the rest did not come after the ring was read")
		}
	})
}

// TestCaptureRealFrames: a tag that the kernel keeps beside the packet is in the frame again.
func TestCaptureRealFrames(t *testing.T) {
	everywhere(t, func(t *testing.T, o *Observer, p *pod) {
		p.attach(t, o, 42)
		one := Address{Ifindex: uint32(p.ifindex), Generation: 42, IP: addr("10.0.0.7")}
		tagged, double := one, one
		tagged.VLAN, double.VLAN = VLAN{Outer: 7}, VLAN{100, 7}
		capture(t, o, one, tagged, double)
		payload := make([]byte, 700)
		check := func(kept int, sent []byte) {
			t.Helper()
			o.frames.SetDeadline(time.Now().Add(time.Minute))
			var f Frame
			if err := o.ReadFrame(&f); err != nil || !bytes.Equal(f.Data, sent[:kept]) || f.Length != len(sent) {
				t.Errorf("read %d bytes\n%x, sent %d\n%x, %v", f.Length, f.Data, len(sent), sent[:kept], err)
			}
		}
		for _, c := range []struct {
			kept  int
			frame []byte
		}{
			{42, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.7", "10.0.0.2"))},
			{46, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.7", "10.0.0.2"), [2]int{typeVLAN, 0x2007})},
			{50, join(frame(podMAC, typeIPv4, ipv4("10.0.0.7", 0), [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}), payload)},
			{42, join(ipv4Frame("10.0.0.7"), payload)},
		} {
			p.send(t, c.frame)
			check(c.kept, c.frame)
		}
		// Only the Ethernet header of this one is linear.
		ring := join(ipv4Frame("10.0.0.7"), payload)
		p.sendByRing(t, ring)
		check(42, ring)
	})
}

func TestCaptureClosed(t *testing.T) {
	testneeds.Root(t)
	o, err := Load(Options{Mode: TC})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { read <- o.ReadFrame(new(Frame)) }()
	one := []Address{{Ifindex: loopback, IP: addr("10.0.0.1")}}
	if err := errors.Join(o.Capture(one), o.Close()); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{<-read, o.Capture(one), o.Release(one)} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if lost := o.LostFrames(one); lost != 0 {
		t.Errorf("%d frames are lost after Close", lost)
	}
}

// TestCaptureNoRoom: as many addresses are captured as fit.
func TestCaptureNoRoom(t *testing.T) {
	o := load(t, Options{Mode: TC})
	var all []Address
	ip := addr("10.1.0.0")
	for range o.captures.MaxEntries() + 1 {
		all, ip = append(all, Address{Ifindex: loopback, IP: ip}), ip.Next()
	}
	if err := o.Capture(all); err == nil {
		t.Error("more addresses are captured than there is room for")
	}
	release(t, o, all...)
	if o.captured != 0 {
		t.Errorf("%d are captured after all were released", o.captured)
	}
}
