package bpf

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoQdisc means that in TC mode the interface has neither a clsact nor an ingress qdisc.
	ErrNoQdisc = errors.New("no clsact or ingress qdisc")
	// ErrGone means that there is no such interface.
	ErrGone = errors.New("the interface is gone")
	// ErrBusy means that another XDP program is attached, or a tc filter with our priority and another
	// kind or with our handle, or this observer itself.
	ErrBusy = errors.New("the hook is in use")
)

// AttachOptions configure the attachment to one interface.
type AttachOptions struct {
	// Generation distinguishes interfaces, because the kernel reuses an ifindex. Records carry it, and
	// the program ignores what it stored under another one.
	Generation uint32
	// CreateQdisc lets TC mode create a clsact qdisc when there is none. Some CNI plugins fail
	// on an interface that has one, so wait until the interface is set up. It is never deleted.
	CreateQdisc bool
	// Netkit says that the interface is the primary end of a netkit pair. In TCX mode the program then runs where the
	// other end sends, before the programs there, which may redirect packets so that they never enter here.
	Netkit bool
	// Inside is the device to attach to, if it is in another netns. In TCX mode only.
	Inside *Inside
	// Early observes the interface by the socket of [Observer.OpenEarly], which must be open, until Attach is called again for it, with
	// the same Generation and without Early, also if that fails with [ErrNoQdisc]. What is observed by then is not recorded once more, and
	// the counters go on.
	Early bool
}

// hook is a program at one interface, in one of the three modes.
type hook interface {
	// state asks the kernel, and reads the link if it is nil. Without the interface it is Detached.
	state(link netlink.Link) (State, error)
	// Close removes our program only. It is no error if that is gone.
	Close() error
}

// State is the place of an attached program among the programs of its interface.
type State string

// The states.
const (
	Detached State = "detached" // it was removed, or the interface is gone
	Attached State = "attached" // it sees every packet first
	Shadowed State = "shadowed" // another program runs before it and may drop packets
	Early    State = "early"    // without a program, see [AttachOptions].Early
)

// Attachment is the observer's program at one interface. Its methods are safe for concurrent use.
type Attachment struct {
	observer   *Observer
	ifindex    int
	generation uint32
	hook       hook
	// Guarded by observer.mu. Detaching failed if closing is true and closed is not.
	closing, closed bool
}

// Attach observes the packets that enter at an interface of the calling thread's netns. With [AttachOptions].Inside it
// observes those that a device of another netns sends: ifindex is then a number above [math.MaxInt32], which no interface
// has and which stands for the device everywhere else. Errors match [ErrGone], [ErrNoQdisc], [ErrBusy], or after Close
// [os.ErrClosed]; inside another netns [ebpf.ErrNotSupported] in TC and XDP mode; for netkit and inside another netns also if
// the kernel lacks what that needs.
func (o *Observer) Attach(ifindex int, opts AttachOptions) (_ *Attachment, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("attach to interface %d: %w", ifindex, err)
		}
	}()
	if o.closed {
		return nil, os.ErrClosed
	}
	device := ifindex
	if opts.Inside != nil {
		if ifindex <= math.MaxInt32 || ifindex > math.MaxUint32 {
			return nil, fmt.Errorf("the number of a device of another netns is from %d to %d", math.MaxInt32+1, math.MaxUint32)
		}
		device = opts.Inside.Ifindex
	}
	if device <= 0 || device > math.MaxInt32 {
		return nil, fmt.Errorf("%w: an ifindex is from 1 to %d", ErrGone, math.MaxInt32)
	}
	if old := o.attached[ifindex]; old != nil {
		if _, early := old.hook.(earlyHook); early && !old.closing && !opts.Early && old.generation == opts.Generation {
			hook, err := o.attachHook(ifindex, opts)
			switch {
			case err == nil:
				old.hook = hook
				return old, nil
			case errors.Is(err, ErrNoQdisc):
				return nil, err
			}
			return nil, errors.Join(err, old.close())
		}
		_, early := old.hook.(earlyHook) // of an earlier interface
		if !old.closing && !early {
			state, err := old.hook.state(nil)
			if err != nil {
				return nil, err
			}
			if state != Detached {
				return nil, fmt.Errorf("%w: attached already", ErrBusy)
			}
		}
		// The kernel reused the ifindex before the old attachment was closed, or closing it failed.
		if err := old.close(); err != nil {
			return nil, err
		}
	}

	// Before attaching: packets come at once.
	if err := o.interfaces.Put(uint32(ifindex), &observerInterface{Generation: opts.Generation}); err != nil {
		if errors.Is(err, unix.E2BIG) {
			return nil, fmt.Errorf("%d interfaces are attached and there is no room for more: raise MaxInterfaces: %w", o.interfaces.MaxEntries(), err)
		}
		return nil, fmt.Errorf("add the interface: %w", err)
	}
	if err := o.nextEpoch(); err != nil {
		return nil, errors.Join(err, o.removeEntry(ifindex))
	}
	hook, err := o.attachHook(ifindex, opts)
	if err != nil {
		return nil, errors.Join(err, o.removeEntry(ifindex))
	}
	attachment := &Attachment{observer: o, ifindex: ifindex, generation: opts.Generation, hook: hook}
	o.attached[ifindex] = attachment
	return attachment, nil
}

func (o *Observer) attachHook(ifindex int, opts AttachOptions) (hook, error) {
	switch {
	case opts.Early && (opts.Inside != nil || o.early == nil):
		return nil, fmt.Errorf("observe it early: %w", ebpf.ErrNotSupported)
	case opts.Early:
		return earlyHook{o, ifindex}, nil
	case opts.Inside != nil:
		return o.attachInside(ifindex, opts.Inside)
	case o.mode == TC:
		return attachTC(o.program, ifindex, opts.CreateQdisc)
	case o.mode == XDP:
		return attachXDP(o.program, ifindex)
	case opts.Netkit:
		return o.attachNetkit(ifindex)
	}
	return attachTCX(o.program, ifindex)
}

// removeEntry removes an interface from the kernel's table and cache.
func (o *Observer) removeEntry(ifindex int) error {
	var errs []error
	if err := o.interfaces.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		errs = append(errs, fmt.Errorf("remove the entry of interface %d: %w", ifindex, err))
	}
	return errors.Join(append(errs, o.nextEpoch())...)
}

// Close detaches the program and drops the interface's counters. It is no error when the interface is
// gone, or when Close was called before. If the interface has moved to another netns, Close detaches the
// program there: the kernel moves tcx and XDP programs with their interface, and drops tc filters
// (dev_change_net_namespace, net/core/dev.c). It is no error either when the netns of [AttachOptions].Inside is gone. After an
// error, call it again; the next Attach to the interface does so, too.
func (a *Attachment) Close() error {
	a.observer.mu.Lock()
	defer a.observer.mu.Unlock()
	return a.close()
}

// close does the work of Close. The caller holds observer.mu.
func (a *Attachment) close() error {
	if a.closed {
		return nil
	}
	a.closing = true
	// First: without its entry the program does nothing, also while it is detached, which may take 18 ms, and
	// if that fails.
	err := a.observer.removeEntry(a.ifindex)
	if detachErr := a.hook.Close(); detachErr != nil {
		return errors.Join(err, fmt.Errorf("detach from interface %d: %w", a.ifindex, detachErr))
	}
	a.closed = true
	delete(a.observer.attached, a.ifindex)
	return err
}

// State asks the kernel whether the program is still attached, and whether another one runs before it.
// The caller passes the interface's link if it has just listed all links, which is cheaper than to read
// each, else nil. The error is that of the query. Of a device inside another netns it tells only whether the program is
// attached: it is never Shadowed.
func (a *Attachment) State(link netlink.Link) (State, error) {
	a.observer.mu.Lock()
	defer a.observer.mu.Unlock()
	if a.closed {
		return Detached, nil
	}
	state, err := a.hook.state(link)
	if err != nil {
		return Detached, fmt.Errorf("query the programs of interface %d: %w", a.ifindex, err)
	}
	return state, nil
}

// shadowedByXDP returns the state of a program that is first at its own hook: XDP of any kind, native,
// generic or offloaded, runs before tc. It reads the link if that is nil.
func shadowedByXDP(ifindex int, link netlink.Link) (State, error) {
	if link == nil {
		var err error
		if link, err = netlink.LinkByIndex(ifindex); err != nil {
			if errors.Is(classify(err), ErrGone) {
				return Detached, nil
			}
			return Detached, fmt.Errorf("query xdp: %w", err)
		}
	}
	if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
		return Shadowed, nil
	}
	return Attached, nil
}

// classify adds ErrGone or ErrBusy to an error of the kernel.
func classify(err error) error {
	_, notFound := errors.AsType[netlink.LinkNotFoundError](err)
	switch {
	case notFound, errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}
