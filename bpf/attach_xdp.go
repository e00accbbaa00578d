package bpf

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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
