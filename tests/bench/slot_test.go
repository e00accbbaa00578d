package bench

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

// shareSlot measures packets that come in turns from two interfaces with one slot of the observer's
// cache. BPF_PROG_TEST_RUN takes all packets of a call from one interface, so each packet is a call,
// and the row is one packet of one address (own) and what such turns cost more than those of two
// interfaces that share no slot.
func (b *bench) shareSlot(n *lab.Node, least, own float64) {
	b.Helper()
	// The cache has room for 1024 interfaces.
	const first, apart, shared = 2000, 2001, 2000 + 1024
	sandbox, err := n.AddSandbox("slot")
	b.Do(err)
	observer, err := bpf.Load(bpf.Options{Mode: bpf.TC})
	b.Do(err)
	b.Cleanup(func() { b.Do(observer.Close()) })
	b.Do(sandbox.Exec(func() error {
		for _, index := range []int{first, apart, shared} {
			name := fmt.Sprintf("slot%d", index)
			if err := netlink.LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}, PeerName: name + "p",
			}); err != nil {
				return err
			}
			if _, err := observer.Attach(index, bpf.AttachOptions{Generation: 1, CreateQdisc: true}); err != nil {
				return err
			}
		}
		link, err := netlink.LinkByIndex(first)
		if err != nil {
			return err
		}
		filters, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		if err != nil || len(filters) == 0 {
			return fmt.Errorf("no program is attached: %w", err)
		}
		program, err := ebpf.NewProgramFromID(ebpf.ProgramID(filters[0].(*netlink.BpfFilter).Id))
		if err != nil {
			return err
		}
		defer program.Close()

		// Many short runs: a call takes fifty times as long as what is measured.
		var more []float64
		for range b.rounds * b.repeat / 2000 {
			more = append(more, b.alternate(program, first, shared)-b.alternate(program, first, apart))
		}
		ns := own + median(more)
		b.row("two interfaces in one slot of the cache, in turns", sharedSlot, "%5.1f ns, %.2f × empty", ns, ns/least)
		return nil
	}))
}

// skbContext is struct __sk_buff, for ctx_in of BPF_PROG_TEST_RUN.
type skbContext struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}

// alternate runs a program on packets that come from two interfaces in turns, each by a call, and returns
// the nanoseconds of a call.
func (b *bench) alternate(program *ebpf.Program, one, other uint32) float64 {
	b.Helper()
	const calls = 100
	frame := ipFrame("10.0.0.1", 0)
	began := b.threadTime()
	for i := range calls {
		index := one
		if i%2 == 1 {
			index = other
		}
		_, err := program.Run(&ebpf.RunOptions{Data: frame, Context: &skbContext{Ifindex: index}})
		b.Do(err)
	}
	return float64(b.threadTime()-began) / float64(calls)
}
