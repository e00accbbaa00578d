package bpf

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

type tcxHook struct {
	link    link.Link
	id      link.ID
	ifindex int
}

// attachTCX puts the program at the head of the chain, so that it sees packets that other programs drop.
// The link is not pinned: the kernel removes it when the process ends.
func attachTCX(program *ebpf.Program, ifindex int) (hook, error) {
	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: ifindex,
		Program:   program,
		Attach:    ebpf.AttachTCXIngress,
		Anchor:    link.Head(),
	})
	if err != nil {
		return nil, classify(err)
	}
	info, err := attached.Info()
	if err != nil {
		return nil, errors.Join(err, attached.Close())
	}
	return &tcxHook{link: attached, id: info.ID, ifindex: ifindex}, nil
}

func (h *tcxHook) state(l netlink.Link) (State, error) {
	programs, err := tcxPrograms(h.ifindex)
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
	}
	return shadowedByXDP(h.ifindex, l)
}

func (h *tcxHook) detach() error { return h.link.Close() }

// tcxPrograms lists the ingress programs of an interface in the order they run, none without tcx or
// without the interface.
func tcxPrograms(ifindex int) ([]link.AttachedProgram, error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
	switch {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL), errors.Is(err, ebpf.ErrNotSupported):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return result.Programs, nil
}
