package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

const (
	unspecified = -1 // TC_ACT_UNSPEC: the next filter decides
	accept      = 0  // TC_ACT_OK: no filter after this one runs
)

// In tc mode the pods' interfaces already have a qdisc and other programs' filters, which end the
// chain. The agent sees every packet before them, they see every packet after it, and when it ends
// they are unchanged.
func TestForeignFilters(t *testing.T) {
	for _, kind := range []string{"clsact", "ingress"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			ip := n.IPv4(5)
			one := l.Pod(n, "one", lab.PodOptions{Addrs: []netip.Addr{ip}})
			two := l.Pod(n, "two", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})

			second, fourth := newForeign(l, accept), newForeign(l, accept)
			for _, p := range []*lab.Pod{one, two} {
				index, err := n.Ifindex(p.HostInterface)
				l.Do(err)
				l.Do(n.Netlink().QdiscAdd(ingressQdisc(index, kind)))
				filters := []netlink.Filter{
					// At our own priority: who comes later runs first.
					newForeign(l, unspecified).filter(index, netlink.HANDLE_MIN_INGRESS, 1),
					second.filter(index, netlink.HANDLE_MIN_INGRESS, 2),
					u32(index, 3),
					fourth.filter(index, netlink.HANDLE_MIN_INGRESS, 4),
				}
				if kind == "clsact" {
					filters = append(filters, newForeign(l, accept).filter(index, netlink.HANDLE_MIN_EGRESS, 1))
				}
				for _, f := range filters {
					l.Do(n.Netlink().FilterAdd(f))
				}
			}
			before := tcOf(l, n)

			a := l.Agent(n, "--attach", "tc")
			w := l.Watch(a)
			wantGuest := func(when string) {
				t.Helper()
				l.Eventually(when, func() error {
					var foreignProgram []string
					ours := 0
					for _, line := range tcOf(l, n) {
						if strings.Contains(line, "dupip_observer") {
							ours++
							continue
						}
						foreignProgram = append(foreignProgram, line)
					}
					if diff := cmp.Diff(before, foreignProgram); diff != "" || ours != 2 {
						return fmt.Errorf("%d filters are ours, want 2; those of others (-want +got):\n%s", ours, diff)
					}
					return nil
				})
			}
			wantState := func(a *lab.Agent) {
				t.Helper()
				for _, p := range []*lab.Pod{one, two} {
					l.Eventually("state of "+p.HostInterface, func() error { return wantInterface(l, a, p.HostInterface, "attached", "") })
				}
			}
			wantState(a)
			wantGuest("observed")
			packets := second.count(l)
			l.Do(two.AddAddr(ip))
			_, err := w.WaitConfirmed(ip, patience)
			l.Do(err)
			if got := second.count(l); got == packets {
				t.Error("the filter after ours saw no packet")
			}
			if got := fourth.count(l); got != 0 {
				t.Errorf("%d packets came past a filter that ends the chain: this test proves nothing", got)
			}
			l.Do(a.Stop())
			if diff := cmp.Diff(before, tcOf(l, n)); diff != "" {
				t.Errorf("stopped (-before +after):\n%s", diff)
			}

			killed := l.Agent(n, "--attach", "tc")
			wantState(killed)
			l.Do(killed.Kill())
			wantGuest("killed")
			last := l.Agent(n, "--attach", "tc")
			wantState(last)
			wantGuest("started again")
			l.Do(last.Stop())
			if diff := cmp.Diff(before, tcOf(l, n)); diff != "" {
				t.Errorf("stopped again (-before +after):\n%s", diff)
			}
		})
	}
}

// An interface with a filter of another kind at the first priority cannot be observed in tc mode. The
// agent reports that, keeps the filter, and observes the other interfaces.
func TestFirstPriorityTaken(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	taken := l.Pod(n, "taken", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	free := l.Pod(n, "free", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
	l.Do(addClsact(n))
	index, err := n.Ifindex(taken.HostInterface)
	l.Do(err)
	l.Do(n.Netlink().FilterAdd(u32(index, 1)))
	before := tcOf(l, n)
	a := l.Agent(n, "--attach", "tc")
	l.Eventually("taken", func() error {
		return wantInterface(l, a, taken.HostInterface, "failed", "tc priority 1 at ingress is in use by another kind of filter")
	})
	l.Eventually("free", func() error { return wantInterface(l, a, free.HostInterface, "attached", "") })
	_, err = a.Client.WaitBinding(within(l, patience), n.IPv4(6), func(b lab.Binding) bool { return b.Netns == free.Name })
	l.Do(err)
	l.Do(a.Stop())
	if diff := cmp.Diff(before, tcOf(l, n)); diff != "" {
		t.Errorf("stopped (-before +after):\n%s", diff)
	}
}

// By default an agent uses the best mode of the kernel.
func TestAttachAuto(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	a := l.Agent(l.Node(""))
	s, err := a.Client.Status(t.Context())
	l.Do(err)
	want := "tcx"
	if !hasTCX(t) {
		want = "tc"
	}
	if s["attach"] != want {
		t.Errorf("attached by %v, want %s", s["attach"], want)
	}
}

// If the kernel has no tcx, --attach=tcx fails with one line.
func TestAttachTCX(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	if hasTCX(t) {
		l.Agent(n, "--attach", "tcx")
		return
	}
	a, err := n.StartAgent("--attach", "tcx")
	l.Do(err)
	if err := a.Wait(within(l, patience)); err == nil || errors.Is(err, lab.ErrTimeout) {
		t.Errorf("the agent ended with %v, want a failure", err)
	}
	text := strings.TrimSpace(a.Log())
	if strings.Contains(text, "\n") || !strings.Contains(text, "tcx needs Linux 6.6") || !strings.Contains(text, "use auto or tc") {
		t.Errorf("the agent reports %q", text)
	}
}

func wantInterface(l *lab.T, a *lab.Agent, name, state, reason string) error {
	i, err := interfaceOf(l, a, name)
	if err == nil && (i.State != state || !strings.Contains(i.Reason, reason)) {
		err = fmt.Errorf("interface %+v, want %s, %q", i, state, reason)
	}
	return err
}

// foreignProgram is another user's tc program: it counts packets and returns its verdict.
type foreignProgram struct {
	program *ebpf.Program
	counter *ebpf.Map
}

func newForeign(l *lab.T, verdict int32) *foreignProgram {
	l.Helper()
	l.Do(rlimit.RemoveMemlock()) // before Linux 5.11
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	l.Do(err)
	l.Cleanup(func() { _ = counter.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:    ebpf.SchedCLS,
		License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
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
		},
	})
	l.Do(err)
	l.Cleanup(func() { _ = program.Close() })
	return &foreignProgram{program, counter}
}

func (f *foreignProgram) filter(index int, parent uint32, priority uint16) netlink.Filter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL},
		Fd:          f.program.FD(), Name: "foreign", DirectAction: true,
	}
}

func (f *foreignProgram) count(l *lab.T) (n uint64) {
	l.Helper()
	l.Do(f.counter.Lookup(uint32(0), &n))
	return n
}

func u32(index int, priority uint16) netlink.Filter {
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: priority, Protocol: unix.ETH_P_ALL,
	}}
}

// tcOf describes the qdiscs and filters at the interfaces of a node, a line for each, in
// the order in which the filters run.
func tcOf(l *lab.T, n *lab.Node) []string {
	l.Helper()
	links, err := n.Netlink().LinkList()
	l.Do(err)
	slices.SortFunc(links, func(a, b netlink.Link) int { return a.Attrs().Index - b.Attrs().Index })
	var lines []string
	for _, link := range links {
		name := link.Attrs().Name
		qdiscs, err := n.Netlink().QdiscList(link)
		l.Do(err)
		parents := []uint32{netlink.HANDLE_MIN_INGRESS}
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				// An ingress qdisc has one list of filters, and shows it here as well.
				parents = append(parents, netlink.HANDLE_MIN_EGRESS)
			}
			lines = append(lines, fmt.Sprintf("%s qdisc %s %s", name, q.Type(), q.Attrs()))
		}
		for _, parent := range parents {
			filters, err := n.Netlink().FilterList(link, parent)
			l.Do(err)
			for _, f := range filters {
				a := f.Attrs()
				line := fmt.Sprintf("%s filter %s parent %x priority %d protocol %x handle %x", name, f.Type(), a.Parent, a.Priority, a.Protocol, a.Handle)
				if bpf, ok := f.(*netlink.BpfFilter); ok {
					line += fmt.Sprintf(" %s program %d", bpf.Name, bpf.Id)
				}
				lines = append(lines, line)
			}
		}
	}
	return lines
}
