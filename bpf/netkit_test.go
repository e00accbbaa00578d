package bpf

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
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

func needsNetkit(tb testing.TB) {
	tb.Helper()
	if !byNetkit {
		tb.Skip("this is about netkit: make test-vm KERNEL=6.12 runs it")
	}
}

// TestNetkitOrder: other programs of a netkit pair before ours, behind it, and away again. What a later one drops has been seen, and
// is dropped.
func TestNetkitOrder(t *testing.T) {
	needsNetkit(t)
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
		if _, err := p.socket.Write(frame); !errors.Is(err, unix.ENOBUFS) {
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

// TestNetkitPolicy: the owner of a pair wants nothing to pass until its program is there, and again when that has gone. We see what
// is sent, and let nothing pass that would not without us.
func TestNetkitPolicy(t *testing.T) {
	needsNetkit(t)
	isolate(t)
	p := newPodWith(t, "host0", netlink.NETKIT_POLICY_BLACKHOLE)
	o := load(t, Options{Mode: TCX})
	entered := newForeign(t, next)
	entered.attachTCX(t, p.ifindex, nil)
	a := attach(t, o, p.ifindex, 1)
	last := 6
	send := func(passes bool, when string) {
		t.Helper()
		last++
		ip, before := fmt.Sprint("10.0.0.", last), entered.count(t)
		_, err := p.socket.Write(ipv4Frame(ip))
		if passes != (err == nil) || err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("%s: sending: %v", when, err)
		}
		waitFor(t, o, data(ip)...)
		if passes {
			poll(t, func() bool { return entered.count(t) > before })
		} else if n := entered.count(t); n != before {
			t.Errorf("%s: %d packets passed", when, n-before)
		}
	}
	send(false, "we are alone")
	for _, verdict := range []int32{pass, next} {
		owner := newForeign(t, verdict).attachNetkit(t, p.ifindex, link.Tail())
		send(true, fmt.Sprint("the owner's program says ", verdict))
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
		send(false, "it has gone")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.socket.Write(ipv4Frame("10.0.0.99")); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("sending without us: %v", err)
	}
}

// BenchmarkNetkit measures a packet of one address that enters from a netkit pair: an empty program, that of a veth, and that of netkit,
// which looks at the pair's policy, too, in turns. In an emulated machine only their ratios say something.
func BenchmarkNetkit(b *testing.B) {
	needsNetkit(b)
	isolate(b)
	p := newPod(b, "host0")
	o := load(b, Options{Mode: TCX})
	enter(b, o, p.ifindex, 1)
	netkit, err := o.loadMore("dupip_netkit")
	if err != nil {
		b.Fatal(err)
	}
	programs := []*ebpf.Program{
		newProgram(b, ebpf.SchedCLS, asm.Mov.Imm(asm.R0, next), asm.Return()), o.program, netkit.Programs["dupip_netkit"],
	}
	opts := &ebpf.RunOptions{Data: ipv4Frame("10.0.0.7"), Context: &skbContext{Ifindex: uint32(p.ifindex)}, Repeat: 20_000}
	took := make([][]float64, len(programs)) // ns a packet
	for b.Loop() {
		for i, program := range programs {
			began := time.Now()
			if _, err := program.Run(opts); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/float64(opts.Repeat))
		}
	}
	for i, what := range []string{"empty", "veth", "netkit"} {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2], "ns-"+what)
	}
}
