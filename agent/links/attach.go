package links

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// attach attaches the observer to an interface and returns its new state. Only after the set-up of its pod it may create a qdisc, and never at first.
func (w *Watcher) attach(veth *tracked) (State, string) {
	began, i, first := time.Now(), &veth.iface, !veth.tried
	veth.tried, veth.detached, veth.told = true, false, false
	opts := bpf.AttachOptions{Generation: i.Generation, CreateQdisc: !first && !began.Before(veth.createFrom), Netkit: i.Netkit}
	if i.Kind != "" {
		file, err := w.finder.Open(veth.ns.ref, veth.nsid)
		if err != nil {
			return Failed, err.Error()
		}
		defer file.Close()
		opts.Inside = &bpf.Inside{Ifindex: i.InnerIndex, Do: func(f func(cookie uint64) error) error {
			return netns.Do(file, func() error {
				cookie, err := netns.Cookie()
				if err != nil {
					return err
				}
				return f(cookie)
			})
		}}
	}
	attachment, err := w.opts.Observer.Attach(i.Index, opts)
	switch {
	case err == nil:
		veth.early = false
		w.attached[i.Generation] = attachment
		if i.State == Failed {
			w.opts.Log.Info("interface is observed again", "interface", i.Name)
		}
		w.opts.Log.Debug("attached", "interface", i.Name, "ifindex", i.Index, "generation", i.Generation, "took", time.Since(began))
		return stateOf(attachment, nil)
	case errors.Is(err, bpf.ErrNoQdisc):
		return Waiting, "for the pod's set-up to end before a qdisc is made"
	case errors.Is(err, bpf.ErrGone):
		return Failed, "the device is gone" // its RTM_DELLINK is under way
	}
	if veth.early {
		veth.early = false
		delete(w.attached, i.Generation)
	}
	veth.told = errors.Is(err, bpf.ErrBusy) && w.opts.Observer.Mode() == bpf.TC
	if i.State != Failed || i.Reason != err.Error() {
		w.opts.Log.Error("interface cannot be observed, trying again and again", "interface", i.Name, "error", err)
	}
	return Failed, err.Error()
}

// check asks the kernel for the state of an interface, unless attaching is due or the watcher stops. The link was just listed, or is nil if the interface has
// none. It reports whether it asked.
func (w *Watcher) check(veth *tracked, link netlink.Link, now time.Time) bool {
	i := &veth.iface
	if !veth.observed() || veth.attach.due || w.stopping() {
		return false
	}
	state, reason := i.State, i.Reason
	if attachment := w.attached[i.Generation]; attachment != nil {
		state, reason = stateOf(attachment, link)
		if state == Failed {
			w.opts.Log.Warn("interface is not observed any more, attaching again", "interface", i.Name, "reason", reason)
			w.detach(i)
			veth.detached = true
		}
		if state == Shadowed && i.State != Shadowed {
			w.opts.Log.Warn("interface is shadowed: another program runs before dupip's and may drop packets", "interface", i.Name)
		}
	}
	w.table.setState(veth, state, reason, now)
	return true
}

// checkEvent is check after a change of the qdiscs or filters.
func (w *Watcher) checkEvent(veth *tracked, now time.Time) {
	if veth.attach.due {
		veth.filtersChanged(now)
		return
	}
	var link netlink.Link
	if veth.ns == nil {
		var err error
		if link, err = netlink.LinkByIndex(veth.iface.Index); err != nil {
			return // its RTM_DELLINK is under way
		}
	}
	w.check(veth, link, now)
}

// stateOf asks the kernel whether our program is there and runs first. It reads a link that is nil.
func stateOf(attachment *bpf.Attachment, link netlink.Link) (State, string) {
	state, err := attachment.State(link)
	switch {
	case err != nil:
		return Failed, err.Error()
	case state == bpf.Shadowed:
		return Shadowed, "another program runs before dupip's and may drop packets"
	case state == bpf.Detached:
		return Failed, "another program detached ours"
	}
	return Attached, ""
}

// detach detaches from an interface and returns its last counters.
func (w *Watcher) detach(i *Interface) bpf.Counters {
	attachment := w.attached[i.Generation]
	if attachment == nil {
		return bpf.Counters{}
	}
	refused, _ := w.opts.Observer.Counters(i.Index) // fails if the interface is not in the kernel's table
	delete(w.attached, i.Generation)
	w.pruneDue = true
	if err := attachment.Close(); err != nil && !errors.Is(err, bpf.ErrGone) {
		w.opts.Log.Warn("detaching failed; a restart of the agent removes what is left", "interface", i.Name, "error", err)
	} else {
		w.opts.Log.Debug("detached", "interface", i.Name, "ifindex", i.Index, "generation", i.Generation)
	}
	return refused
}
