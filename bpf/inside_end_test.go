package bpf

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// claimed are the devices that the program knows.
func claimed(t *testing.T, o *Observer) (numbers []uint32) {
	t.Helper()
	var device observerInsideDevice
	var number uint32
	all := o.more["dupip_inside"].Maps["inside_devices"].Iterate()
	for all.Next(&device, &number) {
		numbers = append(numbers, number)
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return numbers
}

// wantLeft checks what is left after all attachments are closed.
func wantLeft(t *testing.T, o *Observer, number int) {
	t.Helper()
	if got := claimed(t, o); got != nil {
		t.Errorf("devices %d are left", got)
	}
	if _, err := o.Counters(number); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("counters after Close: %v", err)
	}
}

// TestInsideDeleted: the device is deleted, and a new one has its ifindex before the first attachment is closed.
func TestInsideDeleted(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		parent := mustIndex(t, "parent0")
		a := p.attach(t, o, 1)
		// The program keeps the number.
		p.send(t, ipv4Frame("10.0.0.6"))
		waitFor(t, o, data("10.0.0.6")...)
		again := func() {
			t.Helper()
			p.do(t, func() error { return netlink.LinkDel(byIndex(p.peer)) })
			wantState(t, a, "without its device", Detached)
			p.addDevice(t, parent)
			p.setUp(t, podMAC[:])
			wantState(t, a, "on another device", Detached)
		}
		again()
		p.send(t, ipv4Frame("10.0.0.7"))
		wantRecords(t, o, "not attached")
		// As another number, then as the same.
		p.ifindex++
		b := p.attach(t, o, 2)
		p.send(t, ipv4Frame("10.0.0.7"))
		if got := waitFor(t, o, data("10.0.0.7")...)[0]; got.Ifindex != uint32(p.ifindex) || got.Generation != 2 {
			t.Errorf("recorded at %d generation %d, want %d and 2", got.Ifindex, got.Generation, p.ifindex)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		wantState(t, b, "after closing the first", Attached)
		p.send(t, ipv4Frame("10.0.0.8"))
		waitFor(t, o, data("10.0.0.8")...)

		if _, err := o.Attach(p.ifindex+1, p.options(3)); !errors.Is(err, ErrBusy) || len(claimed(t, o)) != 1 {
			t.Errorf("attaching again as another number gave %v, and devices %d", err, claimed(t, o))
		}
		p.send(t, ipv4Frame("10.0.0.9"))
		waitFor(t, o, data("10.0.0.9")...)

		a = b
		again()
		c := p.attach(t, o, 4)
		p.send(t, ipv4Frame("10.0.0.7"))
		if got := waitFor(t, o, data("10.0.0.7")...)[0]; got.Generation != 4 {
			t.Errorf("recorded generation %d, want 4", got.Generation)
		}
		p.do(t, func() error { return netlink.LinkDel(byIndex(p.peer)) })
		for range 2 {
			if err := errors.Join(b.Close(), c.Close()); err != nil {
				t.Error(err)
			}
		}
		wantState(t, c, "closed", Detached)
		wantLeft(t, o, p.ifindex)
	})
}

// TestInsideEnds: an attachment does not keep the netns alive.
func TestInsideEnds(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		a := p.attach(t, o, 1)
		p.send(t, ipv4Frame("10.0.0.7"))
		waitFor(t, o, data("10.0.0.7")...)
		// It ends together with the netns.
		if err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "end0"}, PeerName: "end1", PeerNamespace: netlink.NsFd(p.file.Fd()),
		}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.file.Close(), p.socket.Close()); err != nil {
			t.Fatal(err)
		}
		poll(t, func() bool {
			_, err := netlink.LinkByName("end0")
			return err != nil
		})
		wantState(t, a, "without its netns", Detached)
		// The parent is free: it can have one passthru device only.
		if err := netlink.LinkAdd(&netlink.Macvlan{
			LinkAttrs: netlink.LinkAttrs{Name: "free0", ParentIndex: mustIndex(t, "parent0")}, Mode: netlink.MACVLAN_MODE_PASSTHRU,
		}); err != nil {
			t.Errorf("add a device to its parent: %v", err)
		}
		for range 2 {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		wantLeft(t, o, p.ifindex)
		wantState(t, a, "closed", Detached)
		if _, err := o.Attach(p.ifindex, p.options(2)); err == nil {
			t.Error("attached in a netns that is closed")
		}
	})
}

// TestInsideMoved: a device that moves to another netns keeps the program, which records nothing there.
func TestInsideMoved(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		other := newNamespace(t)
		a := p.attach(t, o, 1)
		p.do(t, func() error { return netlink.LinkSetNsFd(byIndex(p.peer), int(other.file.Fd())) })
		var chain []link.AttachedProgram
		other.do(t, func() (err error) {
			up(t, "eth0")
			chain, err = chainPrograms(p.peer, ebpf.AttachTCXEgress)
			return err
		})
		if len(chain) != 1 {
			t.Errorf("%d programs moved with the device, want ours", len(chain))
		}
		moved := *p
		moved.namespace = other
		moved.open(t)
		moved.send(t, ipv4Frame("10.0.0.7"))
		wantRecords(t, o, "sent where the device is now")
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		other.do(t, func() (err error) {
			chain, err = chainPrograms(p.peer, ebpf.AttachTCXEgress)
			return err
		})
		if len(chain) != 0 {
			t.Errorf("%d programs are left where the device is now", len(chain))
		}
		wantLeft(t, o, p.ifindex)
	})
}

// TestInsideDetachedByOthers: root can end the link of a tcx program.
func TestInsideDetachedByOthers(t *testing.T) {
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		a := p.attach(t, o, 1)
		if err := a.hook.(*insideHook).Detach(); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "its link detached", Detached)
		b := p.attach(t, o, 2)
		wantState(t, b, "attached again", Attached)
		p.send(t, ipv4Frame("10.0.0.7"))
		waitFor(t, o, data("10.0.0.7")...)
	})
}

// TestInsideRefused: what cannot be attached to leaves nothing.
func TestInsideRefused(t *testing.T) {
	for _, mode := range []Mode{TC, XDP} {
		o := load(t, Options{Mode: mode})
		n := newNamespace(t)
		_, err := o.Attach(1<<31, AttachOptions{Inside: insideOf(n.file, loopback)})
		if !errors.Is(err, ebpf.ErrNotSupported) || !strings.Contains(err.Error(), "needs Linux 6.6 and attach mode tcx") {
			t.Errorf("in mode %s: %v", mode, err)
		}
	}
	eachInside(t, func(t *testing.T, o *Observer, p *pod) {
		noNetns, err := os.Open("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = noNetns.Close() }()
		p.attach(t, o, 1)
		for _, c := range []struct {
			number int
			inside *Inside
			want   error
		}{
			{p.peer, insideOf(p.file, p.peer), nil},
			{-1, insideOf(p.file, p.peer), nil},
			{math.MaxInt32, insideOf(p.file, p.peer), nil},
			{math.MaxUint32 + 1, insideOf(p.file, p.peer), nil},
			{1 << 31, insideOf(p.file, 1<<30), ErrGone},
			{1 << 31, insideOf(p.file, 0), ErrGone},
			{1 << 31, insideOf(p.file, -1), ErrGone},
			{1 << 31, insideOf(noNetns, p.peer), unix.EINVAL},
		} {
			_, err := o.Attach(c.number, AttachOptions{Inside: c.inside})
			if err == nil || !errors.Is(err, c.want) && c.want != nil {
				t.Errorf("attaching to %d as %d gave %v", c.inside.Ifindex, c.number, err)
			}
			if got := claimed(t, o); len(got) != 1 {
				t.Errorf("after %v: devices %d, want one", err, got)
			}
			if _, err := o.Counters(c.number); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("counters after a failed attachment: %v", err)
			}
		}
	})
}

// TestInsideCannotLoad: where the program inside cannot be loaded, others are observed.
func TestInsideCannotLoad(t *testing.T) {
	if !hasTCX(t) {
		wantTCXRefused(t)
		return
	}
	isolate(t)
	p := newPod(t, "host0")
	o := load(t, Options{Mode: TCX})
	if err := onThread(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		_, err := o.Attach(1<<31, AttachOptions{Inside: insideOf(p.file, p.peer)})
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CONFIG_DEBUG_INFO_BTF") || strings.Contains(err.Error(), "\n") {
			t.Errorf("without the right to load it: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	attach(t, o, p.ifindex, 1)
	p.send(t, ipv4Frame("10.0.0.7"))
	waitFor(t, o, data("10.0.0.7")...)
}
