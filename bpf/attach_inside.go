package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Inside is a device in another netns whose packets pass no device of the node, such as a macvlan or an ipvlan. The
// program runs when it sends. It does not see packets that a packet socket sends with PACKET_QDISC_BYPASS.
type Inside struct {
	// Do runs a function on a thread in the netns, with its cookie (SO_NETNS_COOKIE). It is called during Attach only: the
	// attachment does not keep the netns alive.
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
