package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

func (f *foreign) attachNetkit(t *testing.T, ifindex int, anchor link.Anchor) link.Link {
	t.Helper()
	attached, err := link.AttachNetkit(link.NetkitOptions{
		Interface: ifindex, Program: f.program, Attach: ebpf.AttachNetkitPeer, Anchor: anchor,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attached.Close() })
	return attached
}

// TestNetkitOrder: other programs of a netkit pair before ours, behind it, and away again. What a later one drops has been seen, and
// is dropped.
func TestNetkitOrder(t *testing.T) {
	if !byNetkit {
		t.Skip("this test is about netkit: make test-vm runs it")
	}
	isolate(t)
	p := newPod(t, "host0")
	o := load(t, Options{Mode: TCX})
	other, dropper, entered := newForeign(t, next), newForeign(t, drop), newForeign(t, next)
	entered.attachTCX(t, p.ifindex, nil)
	before := other.attachNetkit(t, p.ifindex, link.Head())
	a := attach(t, o, p.ifindex, 1)
	wantState(t, a, "the later is first", Attached)
	p.send(t, ipv4Frame("10.0.0.7"))
	waitFor(t, o, data("10.0.0.7")...)
	poll(t, func() bool { return entered.count(t) >= 1 && other.count(t) >= 1 })

	shadow := dropper.attachNetkit(t, p.ifindex, link.Head())
	wantState(t, a, "behind another", Shadowed)
	refused := func(frame []byte) {
		t.Helper()
		// Unlike a veth, netkit tells the sender that the packet is dropped.
		if _, err := unix.Write(p.socket, frame); !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("sending what is dropped: %v", err)
		}
	}
	refused(ipv4Frame("10.0.0.8"))
	poll(t, func() bool { return dropper.count(t) >= 1 })
	wantRecords(t, o, "swallowed before us")
	if err := shadow.Close(); err != nil {
		t.Fatal(err)
	}
	wantState(t, a, "first again", Attached)

	dropped, through := dropper.count(t), entered.count(t)
	dropper.attachNetkit(t, p.ifindex, link.Tail())
	wantState(t, a, "before another", Attached)
	refused(ipv4Frame("10.0.0.9"))
	waitFor(t, o, data("10.0.0.9")...)
	poll(t, func() bool { return dropper.count(t) > dropped }) // the kernel sends some itself
	if n := entered.count(t); n != through {
		t.Errorf("%d packets entered after those that had, %d", n, through)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := chainPrograms(p.ifindex, ebpf.AttachNetkitPeer); err != nil || len(all) != 1 {
		t.Errorf("%d programs are left beside that of the test: %v", len(all)-1, err)
	}
}
