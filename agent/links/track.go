package links

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/bpf"
)

const (
	// hostShare bounds lists of the node's own addresses to a fiftieth: while pods start
	// there is always a reason for one where each has the gateway on its host end.
	hostShare = 50
	// maxQuiets is how many times the quiet time an interface is waited for at most.
	maxQuiets = 4
	// unseenAfter is after how many an interface is announced as unseen.
	unseenAfter = 4
)

// upsert follows the present state of one link.
func (w *Watcher) upsert(ctx context.Context, link netlink.Link) {
	attrs := link.Attrs()
	w.names[attrs.Index] = attrs.Name
	t := w.tracked[attrs.Index]
	if w.isOutward(link) {
		return
	}
	if !isPod(link, w.exits.devices) {
		w.remove(ctx, attrs.Index)
		return
	}
	if w.isIgnored(attrs.Name) {
		if w.ignored[attrs.Index] != attrs.Name {
			w.removeFor(ctx, attrs.Index, "the configuration says to ignore "+attrs.Name)
			w.ignored[attrs.Index], w.unobservedDirty = attrs.Name, true
		}
		return
	}
	w.noLongerIgnored(attrs.Index)
	if t != nil && (t.nsid != attrs.NetNsID || t.peer != attrs.ParentIndex) {
		w.remove(ctx, attrs.Index)
		t = nil
	}
	master := w.nameOf(attrs.MasterIndex)
	if t == nil {
		w.generation++
		t = &tracked{
			iface: Interface{
				Name:       attrs.Name,
				Index:      attrs.Index,
				Generation: w.generation,
				MAC:        attrs.HardwareAddr,
				Master:     master,
				Listed:     w.listing,
				Up:         attrs.OperState == netlink.OperUp,
			},
			nsid:      attrs.NetNsID,
			peer:      attrs.ParentIndex,
			dirty:     true,
			portDirty: true,
			looks:     rate.NewLimiter(lookRate, lookBurst),
		}
		t.quietAt = time.Now().Add(w.opts.Quiet)
		t.waitUntil = t.quietAt.Add(maxQuiets * w.opts.Quiet)
		w.tracked[attrs.Index] = t
		w.attach(t, false)
		return
	}
	if t.iface.State == Waiting {
		// A link that never comes to rest is not waited for for ever.
		if quiet := time.Now().Add(w.opts.Quiet); quiet.Before(t.waitUntil) {
			t.quietAt = quiet
		}
	}
	before := t.iface
	t.portDirty = t.portDirty || before.Master != master
	t.iface.Name, t.iface.Master, t.iface.MAC = attrs.Name, master, attrs.HardwareAddr
	t.iface.Up = attrs.OperState == netlink.OperUp
	if before.Name != t.iface.Name || before.Master != master || before.Up != t.iface.Up ||
		!slices.Equal(before.MAC, t.iface.MAC) {
		w.emitInterface(ctx, t)
	}
}

// nameOf returns the name of the bridge, bond or VRF with that index, none for 0.
func (w *Watcher) nameOf(index int) string {
	if name, ok := w.names[index]; ok || index == 0 {
		return name
	}
	master, err := netlink.LinkByIndex(index)
	if err != nil {
		return ""
	}
	return master.Attrs().Name
}

func (w *Watcher) remove(ctx context.Context, index int) { w.removeFor(ctx, index, "") }

// removeFor takes an interface off the list; without a reason it is gone.
func (w *Watcher) removeFor(ctx context.Context, index int, reason string) {
	w.noLongerIgnored(index)
	t := w.tracked[index]
	if t == nil {
		return
	}
	delete(w.tracked, index)
	// An error means that nothing is attached.
	refused, _ := w.opts.Observer.Counters(index)
	w.detach(t)
	if t.announced {
		gone := t.iface
		reason = cmp.Or(reason, "interface "+gone.Name+" is gone")
		w.emit(ctx, Event{Kind: Removed, Interface: &gone, Reason: reason, Refused: refused})
	}
}

func (w *Watcher) noLongerIgnored(index int) {
	if _, ok := w.ignored[index]; ok {
		delete(w.ignored, index)
		w.unobservedDirty = true
	}
}

// attach puts the observer on the interface and records the outcome in its state.
func (w *Watcher) attach(t *tracked, createQdisc bool) {
	attachment, err := w.opts.Observer.Attach(t.iface.Index, bpf.AttachOptions{
		Generation:  t.iface.Generation,
		CreateQdisc: createQdisc,
	})
	before := t.iface.State
	switch {
	case err == nil:
		t.attachment = attachment
		t.iface.State, t.iface.Reason = stateOf(attachment, nil)
	case errors.Is(err, bpf.ErrNoQdisc):
		t.iface.State, t.iface.Reason = Waiting, "for the pod's set-up to end before a qdisc is made"
	case errors.Is(err, bpf.ErrGone):
		// Its RTM_DELLINK is under way.
		t.iface.State, t.iface.Reason = Failed, "the device is gone"
	default:
		t.iface.State, t.iface.Reason = Failed, err.Error()
		if before != Failed {
			w.log.Error("interface cannot be observed, trying again at every resync",
				"interface", t.iface.Name, "error", err)
		}
	}
}

func (w *Watcher) detach(t *tracked) {
	if t.attachment == nil {
		return
	}
	w.detached = true
	if err := t.attachment.Close(); err != nil && !errors.Is(err, bpf.ErrGone) {
		w.log.Warn("detaching failed", "interface", t.iface.Name, "error", err)
	}
	t.attachment = nil
}

// stateOf asks the kernel whether our program is there and runs first, and for the link too
// if that is nil.
func stateOf(attachment *bpf.Attachment, link netlink.Link) (State, string) {
	state, err := attachment.StateOf(link)
	switch {
	case err != nil:
		return Failed, err.Error()
	case state == bpf.Shadowed:
		return Shadowed, "another program runs before ours and may swallow packets"
	case state == bpf.Detached:
		return Failed, "somebody detached our program"
	}
	return Attached, ""
}

// inspect checks an attachment that was made earlier, and makes it again where it
// is lost or was never made. The link was just listed.
func (w *Watcher) inspect(ctx context.Context, t *tracked, link netlink.Link) {
	before := t.iface.State
	if t.attachment != nil {
		t.iface.State, t.iface.Reason = stateOf(t.attachment, link)
		if t.iface.State == Failed {
			reason := t.iface.Reason
			w.detach(t)
			if w.attach(t, false); t.attachment != nil {
				w.log.Warn("an interface was not observed for a while", "interface", t.iface.Name, "reason", reason)
			}
		}
	} else if t.iface.State == Failed {
		w.attach(t, false)
	}
	if t.iface.State == before {
		return
	}
	if t.iface.State == Shadowed {
		w.log.Warn("interface is shadowed: a program that was attached in front of ours may swallow packets",
			"interface", t.iface.Name)
	}
	w.emitInterface(ctx, t)
}

// work does what is due and returns when the next thing is, zero for nothing.
func (w *Watcher) work(ctx context.Context, now time.Time) time.Time {
	var next time.Time
	due := func(at time.Time) bool {
		if !at.After(now) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	for _, t := range w.tracked {
		if t.iface.State == Waiting && due(t.quietAt) {
			w.attach(t, true)
			if t.announced {
				w.emitInterface(ctx, t)
			}
		}
		if t.dirty && due(t.nextLook) {
			w.look(ctx, t)
			if t.dirty {
				due(t.nextLook)
			}
		}
	}
	if ports := w.duePorts(); len(ports) > 0 && due(w.nextPorts) {
		w.lookAtPorts(ctx, ports)
	}
	w.takeBack(ctx)
	lookAtHost := w.hostDirty && due(w.nextHost)
	if lookAtHost {
		for _, t := range w.tracked {
			w.removeOutward(ctx, t)
		}
	}
	if w.unobservedDirty {
		w.unobservedDirty = false
		w.emitUnobserved(ctx)
	}
	if lookAtHost {
		w.hostDirty = false
		began := time.Now()
		w.lookAtHost(ctx)
		// Pods that start at once make events of the host's addresses, which are as many.
		w.nextHost = time.Now().Add(max(lookPause, hostShare*time.Since(began)))
	}
	return next
}

// emitInterface sends the interface's present description.
func (w *Watcher) emitInterface(ctx context.Context, t *tracked) {
	iface := t.iface
	if !t.announced {
		if !iface.Seen && t.tries < unseenAfter {
			return // still looking; look will send it
		}
		if iface.Seen && t.portDirty {
			return // lookAtPorts will, with the port's VLAN
		}
		t.announced = true
		iface.FirstName = iface.Name
		t.iface.FirstName = iface.Name
		w.emit(ctx, Event{Kind: Added, Interface: &iface})
		return
	}
	w.emit(ctx, Event{Kind: Changed, Interface: &iface})
}
