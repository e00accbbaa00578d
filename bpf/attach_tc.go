package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// filterName and filterHandle together identify our filters.
	filterName   = "dupip_observer"
	filterHandle = 0x64757069 // "dupi"
	// filterPriority is the highest: a filter before ours may end the chain.
	filterPriority = 1
)

type tcHook struct {
	ifindex int
	program ebpf.ProgramID
}

// attachTC adds a direct-action filter to the ingress side of a clsact or an ingress qdisc, which have
// the same parent. It never deletes the qdisc, because others may use it.
func attachTC(program *ebpf.Program, ifindex int, createQdisc bool) (hook, error) {
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("read the id of the program: %w", err)
	}
	id, _ := info.ID() // kernels without ids are older than those that run the program
	filter := ownFilter(ifindex)
	filter.Fd = program.FD()

	err = netlink.FilterAdd(filter)
	if errors.Is(err, unix.EINVAL) {
		// There is no qdisc, or priority 1 belongs to another kind of filter.
		has, listErr := hasIngressQdisc(ifindex)
		switch {
		case listErr != nil:
			return nil, listErr
		case has:
			return nil, fmt.Errorf("%w: tc priority %d at ingress is in use by another kind of filter: %w", ErrBusy, filterPriority, err)
		case !createQdisc:
			return nil, ErrNoQdisc
		}
		if err := createClsact(ifindex); err != nil {
			return nil, err
		}
		err = netlink.FilterAdd(filter)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("%w: ingress has a tc filter with our handle: another agent runs, or one was killed and Sweep was not called: %w", ErrBusy, err)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("add tc filter: %w", err))
	}
	return &tcHook{ifindex: ifindex, program: id}, nil
}

func ownFilter(ifindex int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex,
			Parent:    netlink.HANDLE_MIN_INGRESS,
			Handle:    filterHandle,
			Priority:  filterPriority,
			Protocol:  unix.ETH_P_ALL,
		},
		Name:         filterName,
		DirectAction: true,
	}
}

func createClsact(ifindex int) error {
	err := netlink.QdiscAdd(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: ifindex,
			Handle:    netlink.MakeHandle(0xffff, 0),
			Parent:    netlink.HANDLE_CLSACT,
		},
		QdiscType: "clsact",
	})
	if err != nil && !errors.Is(err, unix.EEXIST) { // another program may have created it
		return classify(fmt.Errorf("create clsact qdisc: %w", err))
	}
	return nil
}

// hasIngressQdisc reports whether filters can be added to the ingress of an interface.
func hasIngressQdisc(ifindex int) (bool, error) {
	qdiscs, err := netlink.QdiscList(byIndex(ifindex))
	if err != nil {
		return false, classify(fmt.Errorf("list the qdiscs of interface %d: %w", ifindex, err))
	}
	return slices.ContainsFunc(qdiscs, isIngress), nil
}

func isIngress(qdisc netlink.Qdisc) bool {
	return qdisc.Type() == "clsact" || qdisc.Type() == "ingress"
}

// ingressFilters lists the filters in the order they run.
func ingressFilters(ifindex int) ([]netlink.Filter, error) {
	filters, err := netlink.FilterList(byIndex(ifindex), netlink.HANDLE_MIN_INGRESS)
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the tc filters of interface %d: %w", ifindex, err)
	}
	return filters, nil
}

func isOurs(filter netlink.Filter) bool {
	bpf, ok := filter.(*netlink.BpfFilter)
	return ok && bpf.Name == filterName && bpf.Handle == filterHandle
}

func (h *tcHook) isMine(filter netlink.Filter) bool {
	return isOurs(filter) && ebpf.ProgramID(filter.(*netlink.BpfFilter).Id) == h.program
}

// state returns Shadowed for any tcx program, because tcx runs before the qdisc. A filter of the same
// priority that was added later also runs before ours, and is listed before it.
func (h *tcHook) state(link netlink.Link) (State, error) {
	filters, err := ingressFilters(h.ifindex)
	if err != nil {
		return Detached, err
	}
	mine := slices.IndexFunc(filters, h.isMine)
	if mine < 0 {
		return Detached, nil
	}
	// Another chain runs only when a filter of chain 0 sends a packet there.
	before := slices.ContainsFunc(filters[:mine], func(f netlink.Filter) bool { return f.Attrs().Chain == nil || *f.Attrs().Chain == 0 })
	programs, err := chainPrograms(h.ifindex, ebpf.AttachTCXIngress)
	switch {
	case err != nil:
		return Detached, err
	case before || len(programs) > 0:
		return Shadowed, nil
	}
	return shadowedByXDP(h.ifindex, link)
}

func (h *tcHook) Close() error {
	_, err := removeFilter(h.ifindex, h.isMine)
	return err
}

// removeFilter removes our filter, of which an interface has one at most, if it is one that is meant.
func removeFilter(ifindex int, meant func(netlink.Filter) bool) (removed bool, err error) {
	filters, err := ingressFilters(ifindex)
	if err != nil || !slices.ContainsFunc(filters, meant) {
		return false, err
	}
	err = netlink.FilterDel(ownFilter(ifindex))
	if err == nil || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	return false, fmt.Errorf("delete tc filter: %w", err)
}

// Sweep removes our tc filters on all interfaces of the calling thread's netns, and returns how many: a
// killed agent leaves them. It also removes those of an agent that still runs. The kernel removes tcx and
// XDP links when their process ends. After an error Sweep continues with the next interface.
func Sweep() (removed int, err error) {
	qdiscs, err := netlink.QdiscList(nil)
	if err != nil {
		return 0, fmt.Errorf("list qdiscs: %w", err)
	}
	var errs []error
	for _, qdisc := range qdiscs {
		if !isIngress(qdisc) {
			continue
		}
		ours, err := removeFilter(qdisc.Attrs().LinkIndex, isOurs)
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep interface %d: %w", qdisc.Attrs().LinkIndex, err))
		} else if ours {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// byIndex returns a link for functions that use its index only.
func byIndex(ifindex int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
}
