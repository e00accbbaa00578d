package links

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// attacher attaches the observer to interfaces. Its methods return the interface's new state.
type attacher struct {
	log      *slog.Logger
	observer *bpf.Observer
	attached map[uint32]*bpf.Attachment // by generation
	pruneDue bool                       // some were detached
}

// attach attaches to an interface. createQdisc lets it create a qdisc for that. open opens the netns of a device that has
// no end on the node.
func (a *attacher) attach(i *Interface, createQdisc bool, open func() (*os.File, error)) (State, string) {
	began := time.Now()
	opts := bpf.AttachOptions{Generation: i.Generation, CreateQdisc: createQdisc, Netkit: i.Netkit}
	if i.Kind != "" {
		file, err := open()
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
	attachment, err := a.observer.Attach(i.Index, opts)
	switch {
	case err == nil:
		a.attached[i.Generation] = attachment
		if i.State == Failed {
			a.log.Info("interface is observed again", "interface", i.Name)
		}
		a.log.Debug("attached", "interface", i.Name, "ifindex", i.Index, "generation", i.Generation, "took", time.Since(began))
		return stateOf(attachment, nil)
	case errors.Is(err, bpf.ErrNoQdisc):
		return Waiting, "for the pod's set-up to end before a qdisc is made"
	case errors.Is(err, bpf.ErrGone):
		return Failed, "the device is gone" // its RTM_DELLINK is under way
	}
	if i.State != Failed || i.Reason != err.Error() {
		a.log.Error("interface cannot be observed, trying again at every resync", "interface", i.Name, "error", err)
	}
	return Failed, err.Error()
}

// check asks the kernel for the state of an interface to which we attached. The link was just listed. A
// Failed one can be attached to again.
func (a *attacher) check(i *Interface, link netlink.Link) (State, string) {
	attachment := a.attached[i.Generation]
	if attachment == nil {
		return i.State, i.Reason
	}
	state, reason := stateOf(attachment, link)
	if state == Failed {
		a.log.Warn("interface is not observed any more, attaching again", "interface", i.Name, "reason", reason)
		a.detach(i)
	}
	if state == Shadowed && i.State != Shadowed {
		a.log.Warn("interface is shadowed: another program runs before dupip's and may drop packets", "interface", i.Name)
	}
	return state, reason
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
func (a *attacher) detach(i *Interface) bpf.Counters {
	attachment := a.attached[i.Generation]
	if attachment == nil {
		return bpf.Counters{}
	}
	refused, _ := a.observer.Counters(i.Index) // fails if the interface is not in the kernel's table
	delete(a.attached, i.Generation)
	a.pruneDue = true
	if err := attachment.Close(); err != nil && !errors.Is(err, bpf.ErrGone) {
		a.log.Warn("detaching failed; a restart of the agent removes what is left", "interface", i.Name, "error", err)
	} else {
		a.log.Debug("detached", "interface", i.Name, "ifindex", i.Index, "generation", i.Generation)
	}
	return refused
}

// prune removes the addresses of detached interfaces from the kernel's table. It does not run with
// every detach, because many pods may end at once.
func (a *attacher) prune() {
	if !a.pruneDue {
		return
	}
	a.pruneDue = false
	if err := a.observer.Prune(); err != nil {
		a.log.Warn("addresses of interfaces that are gone could not be removed from the kernel's table; the next interface that goes tries again", "error", err)
	}
}
