package links

import (
	"time"

	"github.com/dupip/dupip/bpf"
)

const (
	// earlyFrom is how many interfaces must wait for their turn to be attached to, so that they are observed by a socket on all devices
	// meanwhile. With tcx so many turns take 0.3 s.
	earlyFrom = 8
	// maxRelease limits how long programs are detached one after the other, with pauses: Kubernetes kills an agent that is not gone after 30 s.
	maxRelease = 12 * time.Second
)

// observeEarly observes the interfaces that wait for their turn, if they are many: at the start, or after many pods came at once. Those of
// netkit are not: their packets may be redirected before a socket sees them.
func (w *Watcher) observeEarly() {
	var pending []*tracked
	early := 0
	for _, veth := range w.table.veths {
		switch {
		case veth.early:
			early++
		case veth.iface.State == Pending && veth.ns == nil && !veth.iface.Netkit && veth.attach.due:
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
		i.State, i.Reason, veth.early = Attached, "", true
		w.table.announce(veth)
	}
}

// openEarly reports whether interfaces can be observed early. What fails once is not tried again: it costs as much as a load.
func (w *Watcher) openEarly() bool {
	if !w.early && !w.earlyFailed {
		if err := w.opts.Observer.OpenEarly(); err != nil {
			w.earlyFailed = true
			w.opts.Log.Warn("interfaces are observed only when their turn to be attached to has come", "error", err)
		} else {
			w.early = true
		}
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

// release detaches one program after another when the watcher stops, with pauses as for attaching. Its interface is observed early then, where
// that is possible. It returns when to call it again, and whether all are detached or the time is up.
func (w *Watcher) release(now time.Time) (next time.Time, done bool) {
	if w.releaseUntil.IsZero() {
		w.releaseUntil = now.Add(maxRelease)
		w.releasing = max(len(w.attached), 1)
		w.opts.Log.Info("detaching", "interfaces", len(w.attached))
		if len(w.attached) > 0 {
			w.openEarly()
		}
	}
	if now.After(w.releaseUntil) {
		return now, true
	}
	if w.attachPacer.next.After(now) {
		return w.attachPacer.next, false
	}
	for _, veth := range w.table.veths {
		i := &veth.iface
		attachment := w.attached[i.Generation]
		if attachment == nil || veth.early {
			continue
		}
		if i.Netkit {
			w.detach(i)
		} else if err := attachment.Early(); err != nil {
			w.opts.Log.Warn("detaching failed; a restart of the agent removes what is left", "interface", i.Name, "error", err)
		}
		if state, _ := attachment.State(nil); state == bpf.Early {
			veth.early = true
		} else {
			delete(w.attached, i.Generation)
			i.State, i.Reason = Waiting, "for the end of the agent"
			w.table.announce(veth)
		}
		veth.attach = pacer{}
		w.attachPacer.pause(time.Now(), min(attachPause(now), maxDetachPauses/time.Duration(w.releasing)))
		return w.attachPacer.next, false
	}
	return now, true
}

// stopping reports whether the programs are being detached.
func (w *Watcher) stopping() bool { return !w.releaseUntil.IsZero() }
