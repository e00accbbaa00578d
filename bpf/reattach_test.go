package bpf

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestAttachTwice: an interface has one attachment, and a failed attempt to attach again does not change it.
func TestAttachTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, o *Observer, p *pod) {
		a := p.attach(t, o, 1)
		// wantRecorded also shows that the program runs once: a second one would make a
		// second record of an answer.
		wantRecorded := func(step string, generation uint32) {
			t.Helper()
			answer := frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.7", "10.0.0.2"))
			p.send(t, answer)
			p.send(t, answer)
			want := said{Kind: Answer, IP: addr("10.0.0.7"), MAC: podMAC}
			for _, record := range waitFor(t, o, want, want) {
				if record.Generation != generation {
					t.Errorf("%s: recorded generation %d, want %d", step, record.Generation, generation)
				}
			}
			wantRecords(t, o, step)
		}
		wantRecorded("attached", 1)
		for range 2 {
			if _, err := o.Attach(p.ifindex, p.options(2)); !errors.Is(err, ErrBusy) {
				t.Errorf("attaching again gave %v", err)
			}
			wantState(t, a, "after the attempt", Attached)
			wantRecorded("after the attempt", 1)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "closed", Detached)
		p.send(t, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.7", "10.0.0.2")))
		b := p.attach(t, o, 3)
		wantRecorded("attached again", 3)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		wantState(t, b, "after closing the first again", Attached)
		wantRecorded("after closing the first again", 3)
	})
}

// TestDetachFails: an attachment whose Close failed does not prevent the next Attach. In tc mode the kernel
// can refuse to detach.
func TestDetachFails(t *testing.T) {
	isolate(t)
	p := newPod(t, "host0")
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	a := attach(t, o, p.ifindex, 1)
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	var closeErr, attachErr error
	if err := onThread(func() error {
		if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		// Without CAP_NET_ADMIN. Before Linux 5.19, programs without the other may not even use maps that they have.
		few := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
		if err := unix.Capset(&header, &few[0]); err != nil {
			return err
		}
		closeErr = a.Close()
		_, attachErr = o.Attach(p.ifindex, AttachOptions{Generation: 2})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(closeErr, unix.EPERM) || !errors.Is(attachErr, unix.EPERM) {
		t.Fatalf("without the right to it, closing gave %v and attaching %v, want both refused", closeErr, attachErr)
	}
	p.send(t, ipv4Frame("10.0.0.7"))
	wantRecords(t, o, "while it cannot be detached")

	b := attach(t, o, p.ifindex, 3)
	p.send(t, ipv4Frame("10.0.0.7"))
	if got := waitFor(t, o, data("10.0.0.7")...); got[0].Generation != 3 {
		t.Errorf("recorded generation %d, want 3", got[0].Generation)
	}
	wantState(t, b, "attached again", Attached)
	if filters, err := ingressFilters(p.ifindex); err != nil || len(filters) != 1 {
		t.Errorf("%d filters, %v, want one", len(filters), err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("closing the first again: %v", err)
	}
	wantState(t, b, "after closing the first again", Attached)
}

// TestMovedAway: an interface that moved to another netns keeps a tcx or XDP program, which finds the ifindex
// there in the packets. After Close it records nothing for the interface that has this ifindex here.
func TestMovedAway(t *testing.T) {
	eachMode(t, func(t *testing.T, o *Observer) {
		p, other := newPod(t, "host0"), newNamespace(t)
		a := attach(t, o, p.ifindex, 1)
		host, err := netlink.LinkByIndex(p.ifindex)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetNsFd(host, int(other.file.Fd())); err != nil {
			t.Fatal(err)
		}
		other.do(t, func() error { up(t, "host0"); return nil })
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "host1", Index: p.ifindex}, PeerName: "eth0", PeerNamespace: netlink.NsFd(newNamespace(t).file.Fd()),
		}); err != nil {
			t.Fatal(err)
		}
		attach(t, o, p.ifindex, 2)
		for range 3 {
			p.send(t, ipv4Frame("10.0.0.7"))
		}
		wantRecords(t, o, "sent where the interface is now")
	})
}
