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
	if early == 0 && len(pending) < earlyFrom && !w.stopping {
		w.closeEarly()
	}
	if early == 0 && len(pending) < earlyFrom || w.starting() || !w.openEarly() {
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

// release detaches one program after another when the watcher stops, with pauses as for attaching: its interface is observed early then.
// It returns when to call it again, and whether all are detached.
func (w *Watcher) release(now time.Time) (next time.Time, done bool) {
	if !w.stopping {
		w.stopping, w.releasing = true, len(w.attached)
		w.opts.Log.Info("detaching", "interfaces", w.releasing)
		if w.releasing >= earlyFrom {
			w.openEarly()
		}
	}
	if w.attachPacer.next.After(now) {
		return w.attachPacer.next, false
	}
	for _, veth := range w.table.veths {
		attachment := w.attached[veth.iface.Generation]
		if attachment == nil || veth.iface.State == Early {
			continue
		}
		if err := attachment.Early(); err != nil {
			w.opts.Log.Warn("detaching failed; a restart of the agent removes what is left", "interface", veth.iface.Name, "error", err)
		}
		w.opts.Log.Debug("detached", "interface", veth.iface.Name, "ifindex", veth.iface.Index, "generation", veth.iface.Generation)
		veth.iface.State, veth.iface.Reason, veth.attach = Early, "the agent stops", pacer{}
		w.table.announce(veth)
		w.attachPacer.pause(time.Now(), min(attachPause(now), maxDetachPauses/time.Duration(w.releasing)))
		return w.attachPacer.next, false
	}
	return now, true
}
