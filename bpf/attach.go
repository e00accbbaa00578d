package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoQdisc means that in TC mode the interface has neither a clsact nor an ingress qdisc,
	// and that none was to be created.
	ErrNoQdisc = errors.New("no clsact or ingress qdisc")
	// ErrGone means that there is no such interface, or not any more.
	ErrGone = errors.New("the interface is gone")
	// ErrBusy means that the place is taken: by another XDP program, by a tc filter with our
	// priority and another kind or with our handle, or by this observer itself.
	ErrBusy = errors.New("the place is taken")
)

// AttachOptions say how to attach to one interface.
type AttachOptions struct {
	// Generation is the caller's number for this life of the ifindex, which the kernel gives
	// out again. Records carry it, and nothing remembered under another one counts.
	Generation uint32
	// CreateQdisc lets TC mode create a clsact qdisc when there is none. Some CNI plugins fail
	// on an interface that has one, so wait until the interface is set up. It is never deleted.
	CreateQdisc bool
}

// hook is a program at one interface, in one of the three modes.
type hook interface {
	// state asks the kernel, for the link too if it is nil; an interface that is gone is
	// Detached.
	state(link netlink.Link) (State, error)
	// detach removes ours and nothing else; nothing to remove is no error.
	detach() error
}

// Attachment is the observer's program at one interface. Its methods may be called from several
// goroutines at once.
type Attachment struct {
	observer   *Observer
	ifindex    int
	generation uint32
	hook       hook
	// Guarded by observer.mu. An attachment that is closing but not closed could not be
	// detached.
	closing, closed bool
}

// Attach observes the packets that enter at an interface of the calling thread's netns.
//
// Errors match [ErrGone], [ErrNoQdisc], [ErrBusy], or after Close [os.ErrClosed].
func (o *Observer) Attach(ifindex int, opts AttachOptions) (*Attachment, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	attachment, err := o.attach(ifindex, opts)
	if err != nil {
		return nil, fmt.Errorf("attach to interface %d: %w", ifindex, err)
	}
	return attachment, nil
}

func (o *Observer) attach(ifindex int, opts AttachOptions) (*Attachment, error) {
	if o.closed {
		return nil, os.ErrClosed
	}
	if ifindex <= 0 {
		return nil, fmt.Errorf("%w: an ifindex is positive", ErrGone)
	}
	if old := o.attached[ifindex]; old != nil {
		if !old.closing {
			state, err := old.hook.state(nil)
			if err != nil {
				return nil, err
			}
			if state != Detached {
				return nil, fmt.Errorf("%w: attached already", ErrBusy)
			}
		}
		// The ifindex was given out again before the old attachment was closed; or closing
		// it failed, and the caller that let go of it then could not try again.
		if err := old.close(); err != nil {
			return nil, err
		}
	}

	// The entry first: packets come as soon as the program is attached.
	if err := o.interfaces.Put(uint32(ifindex), &observerInterface{Generation: opts.Generation}); err != nil {
		if errors.Is(err, unix.E2BIG) {
			return nil, fmt.Errorf("%d interfaces are attached and there is no room for more: raise MaxInterfaces: %w", o.interfaces.MaxEntries(), err)
		}
		return nil, fmt.Errorf("enter the interface: %w", err)
	}
	if err := o.nextEpoch(); err != nil {
		return nil, errors.Join(err, o.leave(ifindex))
	}
	hook, err := o.attachHook(ifindex, opts)
	if err != nil {
		return nil, errors.Join(err, o.leave(ifindex))
	}
	attachment := &Attachment{observer: o, ifindex: ifindex, generation: opts.Generation, hook: hook}
	o.attached[ifindex] = attachment
	return attachment, nil
}

func (o *Observer) attachHook(ifindex int, opts AttachOptions) (hook, error) {
	switch o.mode {
	case TCX:
		return attachTCX(o.program, ifindex)
	case TC:
		return attachTC(o.program, ifindex, opts.CreateQdisc)
	case XDP:
		return attachXDP(o.program, ifindex)
	}
	return nil, fmt.Errorf("unknown attach mode %q", o.mode)
}

// leave takes an interface out of the kernel's table and makes the caches forget it too.
func (o *Observer) leave(ifindex int) error {
	var errs []error
	if err := o.interfaces.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		errs = append(errs, fmt.Errorf("remove the entry of interface %d: %w", ifindex, err))
	}
	return errors.Join(append(errs, o.nextEpoch())...)
}

// Close detaches the program, leaves those of others alone, and drops the interface's counters.
// It is no error when the interface is gone, or when Close was called before. After an error it may be
// called again; so does the next Attach to the interface.
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
	// Failing to detach leaves the attachment open, so that the caller, or the next Attach, may
	// try again; without its entry the program does nothing in the meantime.
	a.closing = true
	detachErr := a.hook.detach()
	var errs []error
	if detachErr != nil {
		errs = append(errs, fmt.Errorf("detach from interface %d: %w", a.ifindex, detachErr))
	}
	errs = append(errs, a.observer.leave(a.ifindex))
	if detachErr == nil {
		a.closed = true
		delete(a.observer.attached, a.ifindex)
	}
	return errors.Join(errs...)
}

// State asks the kernel whether the program is still attached, and whether something runs before it.
// The error is that of the query.
func (a *Attachment) State() (State, error) { return a.StateOf(nil) }

// StateOf is State for whoever has just listed the interface's link, which says whether it has XDP.
// To ask for each link of many costs more than all the rest.
func (a *Attachment) StateOf(link netlink.Link) (State, error) {
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

// classify adds the sentinel that an error of the kernel amounts to.
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
