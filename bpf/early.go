package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
)

// OpenEarly observes interfaces of the calling thread's netns without a program at each: see [AttachOptions].Early. A packet socket
// on all devices has a filter that records, and passes nothing on. It takes a millisecond for all interfaces, while tcx takes 16 ms
// for each, in which nobody else changes a device. It costs each packet that comes in at any device of the node about 100 ns, so it
// is for a start, a stop, and for many interfaces at once. Another call does nothing. The error matches [os.ErrClosed] after Close.
func (o *Observer) OpenEarly() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fmt.Errorf("observe interfaces early: %w", os.ErrClosed)
	}
	if o.early != nil {
		return nil
	}
	objects, err := o.loadMore("dupip_early")
	if err != nil {
		return err
	}
	o.early, err = openFilter(objects.Programs["dupip_early"], 0, true)
	return err
}

// CloseEarly ends what OpenEarly began. Interfaces that have no program then are not observed any more. It may take some ten
// milliseconds.
func (o *Observer) CloseEarly() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closeEarly()
}

// closeEarly does the work of CloseEarly. The caller holds mu.
func (o *Observer) closeEarly() error {
	if o.early == nil {
		return nil
	}
	err := o.early.Close()
	o.early = nil
	return err
}

// earlyHook is that of an interface which is observed without a program of its own.
type earlyHook struct {
	observer *Observer
	ifindex  int
}

// state does not see whether the interface is gone: its entry does no harm.
func (h earlyHook) state(netlink.Link) (State, error) {
	if h.observer.early == nil {
		return Detached, nil
	}
	return Early, nil
}

func (earlyHook) Close() error { return nil }

// Early detaches the program but goes on to observe the interface, as with [AttachOptions].Early. Where that is not possible it is
// detached, too.
func (a *Attachment) Early() error {
	a.observer.mu.Lock()
	defer a.observer.mu.Unlock()
	if a.closed || a.closing {
		return nil
	}
	if _, inside := a.hook.(*insideHook); inside || a.observer.early == nil {
		return a.close()
	}
	if err := a.hook.Close(); err != nil {
		return errors.Join(fmt.Errorf("detach from interface %d: %w", a.ifindex, err), a.close())
	}
	a.hook = earlyHook{a.observer, a.ifindex}
	return nil
}
