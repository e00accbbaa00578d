package bpf

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	next = -1 // TCX_NEXT, TC_ACT_UNSPEC
	pass = 0  // TCX_PASS, TC_ACT_OK
	drop = 2  // TCX_DROP, TC_ACT_SHOT
)

// foreign is another program at tc, which counts the packets from podMAC and returns its verdict.
type foreign struct {
	program *ebpf.Program
	counter *ebpf.Map
}

func newForeign(t *testing.T, verdict int32) *foreign {
	t.Helper()
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = counter.Close() })
	return &foreign{
		counter: counter,
		program: newProgram(t, ebpf.SchedCLS,
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counter.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
			asm.Return(),
		),
	}
}

func (f *foreign) count(t *testing.T) uint64 {
	t.Helper()
	var n uint64
	if err := f.counter.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (f *foreign) attachTCX(t *testing.T, ifindex int, anchor link.Anchor) link.Link {
	t.Helper()
	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex, Program: f.program, Attach: ebpf.AttachTCXIngress, Anchor: anchor,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attached.Close() })
	return attached
}

func (f *foreign) filter(ifindex int, priority uint16) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1,
			Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: f.program.FD(), Name: "foreign", DirectAction: true,
	}
}

func addFilter(t *testing.T, filter netlink.Filter) {
	t.Helper()
	if err := netlink.FilterAdd(filter); err != nil {
		t.Fatal(err)
	}
}

// quiet keeps the kernel's own IPv6 packets off both ends, so that every packet is a test's. It also stops
// packets with a timer.
func quiet(t *testing.T, p *pod) {
	t.Helper()
	off := func(device string) error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte("1"), 0o644)
	}
	host, err := netlink.LinkByIndex(p.ifindex)
	if err != nil {
		t.Fatal(err)
	}
	if err := off(host.Attrs().Name); err != nil {
		t.Fatal(err)
	}
	p.do(t, func() error { return off("eth0") })
}

// TestShadowed moves other programs in front of ours, behind it, and away again.
func TestShadowed(t *testing.T) {
	t.Run("tcx", func(t *testing.T) {
		if !hasTCX(t) {
			wantTCXRefused(t)
			return
		}
		isolate(t)
		p := newPod(t, "host0")
		o := load(t, Options{Mode: TCX})
		other := newForeign(t, next)
		before := other.attachTCX(t, p.ifindex, link.Head())
		a := attach(t, o, p.ifindex, 1)
		wantState(t, a, "the later is first", Attached)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}

		dropper := newForeign(t, drop)
		shadow := dropper.attachTCX(t, p.ifindex, link.Head())
		wantState(t, a, "behind another", Shadowed)
		p.send(t, ipv4Frame("10.0.0.7"))
		wantRecords(t, o, "swallowed before us")
		if err := shadow.Close(); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "alone", Attached)
		other.attachTCX(t, p.ifindex, link.Tail())
		wantState(t, a, "before another", Attached)
	})
	t.Run("tc", func(t *testing.T) {
		isolate(t)
		p := newPod(t, "host0")
		o := load(t, Options{Mode: TC})
		a := attach(t, o, p.ifindex, 1)
		wantState(t, a, "alone", Attached)
		other := newForeign(t, next)
		addFilter(t, other.filter(p.ifindex, 2))
		wantState(t, a, "before another", Attached)
		same := other.filter(p.ifindex, filterPriority)
		addFilter(t, same)
		wantState(t, a, "behind one of the same priority", Shadowed)
		if err := netlink.FilterDel(same); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "before another again", Attached)
		if !hasTCX(t) {
			return
		}
		shadow := other.attachTCX(t, p.ifindex, nil)
		wantState(t, a, "behind tcx", Shadowed)
		if err := shadow.Close(); err != nil {
			t.Fatal(err)
		}
		wantState(t, a, "without tcx", Attached)
	})
	for _, mode := range []Mode{TCX, TC} {
		t.Run(string(mode)+" behind xdp", func(t *testing.T) {
			if mode == TCX && !hasTCX(t) {
				wantTCXRefused(t)
				return
			}
			isolate(t)
			p := newPod(t, "host0")
			a := attach(t, load(t, Options{Mode: mode}), p.ifindex, 1)
			for _, flags := range []link.XDPAttachFlags{link.XDPGenericMode, link.XDPDriverMode} {
				shadow, err := link.AttachXDP(link.XDPOptions{
					Interface: p.ifindex, Flags: flags,
					Program: newProgram(t, ebpf.XDP, asm.Mov.Imm(asm.R0, 2), asm.Return()),
				})
				if err != nil {
					t.Fatal(err)
				}
				wantState(t, a, "behind xdp", Shadowed)
				if err := shadow.Close(); err != nil {
					t.Fatal(err)
				}
				wantState(t, a, "without xdp", Attached)
			}
		})
	}
}

// TestDetachedByOthers: other programs delete our filter, or its qdisc.
func TestDetachedByOthers(t *testing.T) {
	isolate(t)
	ifindex := addVeth(t, "host0")
	o := load(t, Options{Mode: TC})
	a := attach(t, o, ifindex, 1)
	if err := netlink.FilterDel(ownFilter(ifindex)); err != nil {
		t.Fatal(err)
	}
	wantState(t, a, "filter deleted", Detached)
	b := attach(t, o, ifindex, 2)
	wantState(t, b, "attached again", Attached)
	if err := netlink.QdiscDel(clsact(ifindex, "clsact")); err != nil {
		t.Fatal(err)
	}
	wantState(t, b, "qdisc deleted", Detached)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestFateUnchanged: programs after ours see each packet once, and their verdict counts.
func TestFateUnchanged(t *testing.T) {
	// So few that a socket's buffer holds them all: under XDP, Linux 6.1 charges a page and more for each.
	const packets = 20
	for _, mode := range modes {
		for name, verdict := range map[string]int32{"pass": pass, "drop": drop} {
			t.Run(string(mode)+" "+name, func(t *testing.T) {
				if mode == TCX && !hasTCX(t) {
					wantTCXRefused(t)
					return
				}
				isolate(t)
				p := newPod(t, "host0")
				quiet(t, p)
				o := load(t, Options{Mode: mode})
				// Both kinds of chain go on behind ours: tcx, then tc.
				first, second := newForeign(t, next), newForeign(t, verdict)
				if err := createClsact(p.ifindex); err != nil {
					t.Fatal(err)
				}
				if hasTCX(t) {
					first.attachTCX(t, p.ifindex, nil)
				} else {
					addFilter(t, first.filter(p.ifindex, 6))
				}
				addFilter(t, second.filter(p.ifindex, 7))
				if mode == TC {
					// Of the same priority, added before ours.
					addFilter(t, first.filter(p.ifindex, filterPriority))
				}
				attach(t, o, p.ifindex, 1)

				listener := p.listen(t)
				sender := p.dial(t, listener)
				for range packets {
					if _, err := sender.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
				}
				waitFor(t, o, data(podIP)...)
				poll(t, func() bool { return second.count(t) >= packets })
				want := uint64(packets)
				if mode == TC {
					want *= 2 // first is attached twice
				}
				if got := first.count(t); got != want {
					t.Errorf("the next program saw %d packets, want %d", got, want)
				}
				if got := second.count(t); got != packets {
					t.Errorf("the last program saw %d packets, want %d", got, packets)
				}
				// Datagrams arrive in order.
				if err := netlink.FilterDel(second.filter(p.ifindex, 7)); err != nil {
					t.Fatal(err)
				}
				if _, err := sender.Write([]byte("the last")); err != nil {
					t.Fatal(err)
				}
				received := 0
				for buffer := make([]byte, 8); ; received++ {
					_ = listener.SetReadDeadline(time.Now().Add(time.Minute))
					n, err := listener.Read(buffer)
					if err != nil {
						t.Fatal(err)
					}
					if string(buffer[:n]) == "the last" {
						break
					}
				}
				if verdict == pass && received != packets || verdict == drop && received != 0 {
					t.Errorf("%d of %d datagrams received after verdict %d", received, packets, verdict)
				}
			})
		}
	}
}

// TestQdisc: TC mode uses the qdisc it finds, creates one on request, and deletes none.
func TestQdisc(t *testing.T) {
	for _, kind := range []string{"clsact", "ingress", "created"} {
		t.Run(kind, func(t *testing.T) {
			isolate(t)
			p := newPod(t, "host0")
			o := load(t, Options{Mode: TC})
			if _, err := o.Attach(p.ifindex, AttachOptions{}); !errors.Is(err, ErrNoQdisc) {
				t.Errorf("attaching without a qdisc gave %v", err)
			}
			if _, err := o.Counters(p.ifindex); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("counters after a failed attachment: %v", err)
			}
			if kind != "created" {
				if err := netlink.QdiscAdd(clsact(p.ifindex, kind)); err != nil {
					t.Fatal(err)
				}
			}
			a, err := o.Attach(p.ifindex, AttachOptions{CreateQdisc: kind == "created"})
			if err != nil {
				t.Fatal(err)
			}
			p.send(t, ipv4Frame("10.0.0.7"))
			waitFor(t, o, data("10.0.0.7")...)
			wantState(t, a, "attached", Attached)

			stranger := newForeign(t, next)
			addFilter(t, stranger.filter(p.ifindex, 2))
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if has, err := hasIngressQdisc(p.ifindex); err != nil || !has {
				t.Errorf("the qdisc is gone: %v", err)
			}
			filters, err := ingressFilters(p.ifindex)
			if err != nil || len(filters) != 1 || isOurs(filters[0]) {
				t.Errorf("left after Close: %v, %v, want the stranger's filter", filters, err)
			}
			if removed, err := Sweep(); err != nil || removed != 0 {
				t.Errorf("swept %d filters of others, %v", removed, err)
			}
		})
	}
}

// TestBusy: hooks that other programs use.
func TestBusy(t *testing.T) {
	t.Run("tc", func(t *testing.T) {
		isolate(t)
		ifindex := addVeth(t, "host0")
		if err := createClsact(ifindex); err != nil {
			t.Fatal(err)
		}
		if err := netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS,
			Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		}}); err != nil {
			t.Fatal(err)
		}
		o := load(t, Options{Mode: TC})
		if _, err := o.Attach(ifindex, AttachOptions{CreateQdisc: true}); !errors.Is(err, ErrBusy) {
			t.Errorf("attaching where a u32 filter is gave %v", err)
		}
	})
	t.Run("xdp", func(t *testing.T) {
		isolate(t)
		ifindex := addVeth(t, "host0")
		for _, flags := range []link.XDPAttachFlags{link.XDPGenericMode, link.XDPDriverMode} {
			other, err := link.AttachXDP(link.XDPOptions{
				Interface: ifindex, Flags: flags,
				Program: newProgram(t, ebpf.XDP, asm.Mov.Imm(asm.R0, 2), asm.Return()),
			})
			if err != nil {
				t.Fatal(err)
			}
			o := load(t, Options{Mode: XDP})
			if _, err := o.Attach(ifindex, AttachOptions{}); !errors.Is(err, ErrBusy) {
				t.Errorf("attaching beside another XDP program gave %v", err)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			attach(t, o, ifindex, 1)
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestXDPFallsBack: a veth with a big MTU refuses native XDP.
func TestXDPFallsBack(t *testing.T) {
	isolate(t)
	p := newPod(t, "host0")
	p.do(t, func() error { return netlink.LinkSetMTU(byIndex(p.peer), 9000) })
	o := load(t, Options{Mode: XDP})
	a := attach(t, o, p.ifindex, 1)
	p.send(t, ipv4Frame("10.0.0.7"))
	waitFor(t, o, data("10.0.0.7")...)
	wantState(t, a, "generic", Attached)
	host, err := netlink.LinkByIndex(p.ifindex)
	if err != nil {
		t.Fatal(err)
	}
	if mode := host.Attrs().Xdp.AttachMode; mode != 2 { // XDP_ATTACHED_SKB
		t.Errorf("attached in mode %d, want 2: this test must force generic XDP", mode)
	}
}

func clsact(ifindex int, kind string) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		},
		QdiscType: kind,
	}
}
