package bpf

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type xdpHook struct{ link link.Link }

// attachXDP takes the driver's own XDP where it has any. A driver may have it and yet refuse, a veth
// with a big MTU or with few queues for example; then the kernel's generic XDP does the same, slower.
func attachXDP(program *ebpf.Program, ifindex int) (hook, error) {
	opts := link.XDPOptions{Program: program, Interface: ifindex}
	attached, err := link.AttachXDP(opts)
	if err != nil && !isFinal(err) {
		opts.Flags = link.XDPGenericMode
		attached, err = link.AttachXDP(opts)
	}
	if errors.Is(err, unix.EINVAL) {
		// That is also what the kernel answers when there is no such interface.
		if _, linkErr := netlink.LinkByIndex(ifindex); linkErr != nil {
			err = linkErr
		}
	}
	if err != nil {
		return nil, classify(err)
	}
	return &xdpHook{link: attached}, nil
}

// isFinal tells whether generic mode would fail for the same reason.
func isFinal(err error) bool {
	for _, errno := range []error{unix.ENODEV, unix.EBUSY, unix.EEXIST, unix.EPERM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// state knows no Shadowed: nothing runs before XDP, and an interface has one XDP program only.
func (h *xdpHook) state(netlink.Link) (State, error) {
	info, err := h.link.Info()
	if err != nil {
		return Detached, err
	}
	// The kernel takes the interface out of the link when it goes.
	if xdp := info.XDP(); xdp == nil || xdp.Ifindex == 0 {
		return Detached, nil
	}
	return Attached, nil
}

func (h *xdpHook) detach() error { return h.link.Close() }
