package links

import (
	"time"

	"github.com/dupip/dupip/bpf"
)

// earlyFrom is how many interfaces must wait for their turn to be attached to, so that they are observed by a socket on all devices
// meanwhile. With tcx so many turns take 0.3 s.
const earlyFrom = 8

// observeEarly observes the interfaces that wait for their turn, if they are many: at the start, or after many pods came at once.
func (w *Watcher) observeEarly(now time.Time) {
	var pending []*tracked
	early := 0
	for _, veth := range w.table.veths {
		switch {
		case veth.iface.State == Early:
			early++
		case veth.iface.State == Pending && veth.ns == nil && veth.attach.due:
			pending = append(pending, veth)
		}
	}
	if early == 0 && len(pending) < earlyFrom {
		w.closeEarly()
		return
	}
	if w.starting() || !w.openEarly() {
		return
	}
	for _, veth := range pending {
		i := &veth.iface
		attachment, err := w.opts.Observer.Attach(i.Index, bpf.AttachOptions{Generation: i.Generation, Early: true})
		if err != nil {
			continue // its turn tells
		}
		w.attached[i.Generation] = attachment
		i.State, i.Reason = Early, "by a socket on all devices: its turn comes to have a program of its own"
		w.table.announce(veth)
	}
}

// openEarly reports whether interfaces can be observed early.
func (w *Watcher) openEarly() bool {
	if !w.early {
		err := w.opts.Observer.OpenEarly()
		if err != nil && !w.earlyFailed {
			w.opts.Log.Warn("interfaces are observed only when their turn to be attached to has come", "error", err)
		}
		w.early, w.earlyFailed = err == nil, err != nil
	}
	return w.early
}

func (w *Watcher) closeEarly() {
	if !w.early {
		return
	}
	w.early = false
	if err := w.opts.Observer.CloseEarly(); err != nil {
		w.opts.Log.Warn("closing the socket on all devices failed", "error", err)
	}
}

// release detaches all programs, which takes seconds, while the interfaces are observed early.
func (w *Watcher) release() {
	count := len(w.attached)
	w.opts.Log.Info("detaching", "interfaces", count)
	if count >= earlyFrom {
		w.openEarly()
	}
	for _, veth := range w.table.veths {
		attachment := w.attached[veth.iface.Generation]
		if attachment == nil {
			continue
		}
		began := time.Now()
		if err := attachment.Early(); err != nil {
			w.opts.Log.Warn("detaching failed; a restart of the agent removes what is left", "interface", veth.iface.Name, "error", err)
		}
		time.Sleep(min(attachPause(began), maxDetachPauses/time.Duration(count)))
	}
	for _, veth := range w.table.veths {
		w.detach(&veth.iface)
	}
	w.closeEarly()
}
