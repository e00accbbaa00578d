package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// chainHook is a place in the chain of programs that an interface runs: one of tcx, or that of netkit, which runs when the pair's
// other end sends. For both TC_ACT_UNSPEC means the next program, and in both the ifindex and the data are those of a packet
// that enters at the interface (drivers/net/netkit.c).
type chainHook struct {
	link.Link
	id      link.ID
	ifindex int
	chain   ebpf.AttachType
}

// attachTCX puts the program at the head of the chain, so that it sees packets that other programs drop.
// The link is not pinned: the kernel removes it when the process ends.
func attachTCX(program *ebpf.Program, ifindex int) (hook, error) {
	const chain = ebpf.AttachTCXIngress
	attached, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: chain, Anchor: link.Head()})
	return chained(attached, err, ifindex, chain)
}

// attachNetkit is attachTCX for the primary end of a netkit pair, with the program that keeps the pair's policy in force.
func (o *Observer) attachNetkit(ifindex int) (hook, error) {
	const chain = ebpf.AttachNetkitPeer
	objects, err := o.loadMore("dupip_netkit")
	if err != nil {
		return nil, err
	}
	program := objects.Programs["dupip_netkit"]
	attached, err := link.AttachNetkit(link.NetkitOptions{Interface: ifindex, Program: program, Attach: chain, Anchor: link.Head()})
	return chained(attached, err, ifindex, chain)
}

func chained(attached link.Link, err error, ifindex int, chain ebpf.AttachType) (hook, error) {
	if err != nil {
		return nil, classify(err)
	}
	info, err := attached.Info()
	if err != nil {
		return nil, errors.Join(err, attached.Close())
	}
	return &chainHook{attached, info.ID, ifindex, chain}, nil
}

func (h *chainHook) state(l netlink.Link) (State, error) {
	programs, err := chainPrograms(h.ifindex, h.chain)
	if err != nil {
		return Detached, err
	}
	// On a new interface with the same ifindex the same program may have another link.
	at := slices.IndexFunc(programs, func(p link.AttachedProgram) bool {
		id, ok := p.LinkID()
		return ok && id == h.id
	})
	switch {
	case at < 0:
		return Detached, nil
	case at > 0:
		return Shadowed, nil
	case h.chain != ebpf.AttachTCXIngress:
		return Attached, nil // XDP comes later, or never
	}
	return shadowedByXDP(h.ifindex, l)
}

// chainPrograms lists the programs of a chain in the order they run, none if the kernel or the interface has no such
// chain, or if there is no such interface.
func chainPrograms(ifindex int, chain ebpf.AttachType) ([]link.AttachedProgram, error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: chain})
	switch {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENXIO), errors.Is(err, ebpf.ErrNotSupported):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return result.Programs, nil
}

type xdpHook struct{ link.Link }

// attachXDP attaches in native mode if the driver supports that, else in generic mode, which is slower.
// A veth with a large MTU or with few queues refuses native mode.
func attachXDP(program *ebpf.Program, ifindex int) (hook, error) {
	opts := link.XDPOptions{Program: program, Interface: ifindex}
	attached, err := link.AttachXDP(opts)
	final := []error{unix.ENODEV, unix.EBUSY, unix.EEXIST, unix.EPERM} // in generic mode, too
	if err != nil && !slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) }) {
		opts.Flags = link.XDPGenericMode
		attached, err = link.AttachXDP(opts)
	}
	if errors.Is(err, unix.EINVAL) {
		// There may be no such interface.
		if _, linkErr := netlink.LinkByIndex(ifindex); linkErr != nil {
			err = linkErr
		}
	}
	if err != nil {
		return nil, classify(err)
	}
	return &xdpHook{attached}, nil
}

// state never returns Shadowed: nothing runs before XDP, and an interface has one XDP program only.
func (h *xdpHook) state(netlink.Link) (State, error) {
	info, err := h.Info()
	if err != nil {
		return Detached, err
	}
	// When an interface is deleted, the kernel clears it in the link.
	if xdp := info.XDP(); xdp == nil || xdp.Ifindex == 0 {
		return Detached, nil
	}
	return Attached, nil
}

// Inside is a device in another netns whose packets pass no device of the node, such as a macvlan or an ipvlan. The
// program runs when it sends. It does not see packets that a packet socket sends with PACKET_QDISC_BYPASS.
type Inside struct {
	// Do runs a function on a thread in the netns, with the kernel's cookie of it (SO_NETNS_COOKIE). It is called during Attach
	// only: the attachment does not keep the netns alive.
	Do func(f func(cookie uint64) error) error
	// Ifindex is that of the device in the netns.
	Ifindex int
}

// insideHook is a place in the egress chain of a device in another netns.
type insideHook struct {
	chainHook
	devices *ebpf.Map
	device  observerInsideDevice
	number  uint32
}

// attachInside is attachTCX for a device in another netns. The number stands for it, and is no ifindex.
func (o *Observer) attachInside(number int, inside *Inside) (hook, error) {
	if o.mode != TCX {
		return nil, fmt.Errorf("inside a netns this needs Linux 6.6 and attach mode tcx, which leaves nothing behind when the process is killed; the mode is %s: %w", o.mode, ebpf.ErrNotSupported)
	}
	objects, err := o.loadMore("dupip_inside")
	if err != nil {
		return nil, err
	}
	h := &insideHook{devices: objects.Maps["inside_devices"], number: uint32(number)}
	err = inside.Do(func(cookie uint64) error {
		h.device = observerInsideDevice{NetnsCookie: cookie, Ifindex: uint64(inside.Ifindex)}
		if err := o.claim(h); err != nil {
			return errors.Join(err, h.release())
		}
		const chain = ebpf.AttachTCXEgress
		attached, err := link.AttachTCX(link.TCXOptions{
			Interface: inside.Ifindex, Program: objects.Programs["dupip_inside"], Attach: chain, Anchor: link.Head(),
		})
		in, err := chained(attached, err, inside.Ifindex, chain)
		if err != nil {
			return errors.Join(err, h.release())
		}
		h.chainHook = *in.(*chainHook)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// claim makes the number stand for the device, before the first packet comes. It runs in the device's netns.
func (o *Observer) claim(h *insideHook) error {
	var number uint32
	err := h.devices.Lookup(&h.device, &number)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("look up the device: %w", err)
	}
	if old := o.attached[int(number)]; err == nil && old != nil {
		state, err := old.hook.(*insideHook).chainHook.state(nil)
		if err != nil {
			return err
		}
		if state != Detached {
			return fmt.Errorf("%w: attached already, as %d", ErrBusy, number)
		}
		// The kernel reused the ifindex before that one was closed.
	}
	if err := h.devices.Put(&h.device, h.number); err != nil {
		return fmt.Errorf("add the device: %w", err)
	}
	return o.nextEpoch() // the program may have kept another number
}

// release is the reverse of claim. It is no error if another one has the device.
func (h *insideHook) release() error {
	var number uint32
	err := h.devices.Lookup(&h.device, &number)
	if err == nil && number == h.number {
		err = h.devices.Delete(&h.device)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the device: %w", err)
	}
	return nil
}

// state is never Shadowed: programs of another netns are listed only there, and it may be gone.
func (h *insideHook) state(netlink.Link) (State, error) {
	info, err := h.Info()
	if err != nil {
		return Detached, err
	}
	// When a device is deleted, the kernel clears it in the link. One that is moved keeps the program, which does not
	// find it among the devices any more.
	if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != h.ifindex {
		return Detached, nil
	}
	return Attached, nil
}

func (h *insideHook) Close() error { return errors.Join(h.chainHook.Close(), h.release()) }
