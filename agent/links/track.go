package links

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

const (
	// lookPause is the least time between two looks into one netns. A pod that changes
	// its addresses all the time has a few quick looks, then lookRate a second.
	lookPause = 10 * time.Millisecond
	lookRate  = 5
	lookBurst = 10
	// lookShare bounds looks at one large netns to a twentieth of a core.
	lookShare = 20
	// maxQuiets is how many times the quiet time an interface is waited for at most.
	maxQuiets = 4
	// firstRetry is the pause after the first look that failed; it doubles.
	firstRetry = 20 * time.Millisecond
	// scanPause is the least time between two scans for namespaces.
	scanPause = 20 * time.Millisecond
	// unseenTries is how often a netns that is not found is looked for before the
	// next resync; a runtime may name it only after it has made the veth.
	unseenTries = 8
	// unseenAfter is after how many an interface is announced as unseen.
	unseenAfter = 4
)

// upsert follows the present state of one link.
func (w *Watcher) upsert(ctx context.Context, link netlink.Link) {
	attrs := link.Attrs()
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
	master := masterName(attrs.MasterIndex)
	if t == nil {
		w.generation++
		t = &tracked{
			iface: Interface{
				Name:       attrs.Name,
				Index:      attrs.Index,
				Generation: w.generation,
				MAC:        attrs.HardwareAddr,
				Master:     master,
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

// masterName returns the name of the bridge, bond or VRF with that index.
func masterName(index int) string {
	if index == 0 {
		return ""
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
		t.iface.State, t.iface.Reason = stateOf(attachment)
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

// stateOf asks the kernel whether our program is there and runs first.
func stateOf(attachment *bpf.Attachment) (State, string) {
	state, err := attachment.State()
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
// is lost or was never made.
func (w *Watcher) inspect(ctx context.Context, t *tracked) {
	before := t.iface.State
	if t.attachment != nil {
		t.iface.State, t.iface.Reason = stateOf(t.attachment)
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
	if w.hostDirty {
		for _, t := range w.tracked {
			w.removeOutward(ctx, t)
		}
	}
	if w.unobservedDirty {
		w.unobservedDirty = false
		w.emitUnobserved(ctx)
	}
	if w.hostDirty {
		w.hostDirty = false
		w.lookAtHost(ctx)
	}
	return next
}

// look reads the netns behind an interface and tells the agent when it is new or
// differs. It also sends Added, so that the agent never hears of an interface
// before all is known that can be.
func (w *Watcher) look(ctx context.Context, t *tracked) {
	place, view, err := w.open(t)
	pause := max(lookPause, lookShare*view.Cost)
	if !t.looks.Allow() {
		pause = max(pause, time.Second/lookRate)
	}
	t.nextLook = time.Now().Add(pause)
	t.dirty = false
	if errors.Is(err, errTooSoon) {
		t.dirty, t.nextLook = true, w.scanned.Add(scanPause)
		return
	}
	if err != nil {
		t.tries++
		w.log.Debug("looking into netns failed", "interface", t.iface.Name, "try", t.tries, "error", err)
		if t.tries < unseenTries {
			t.dirty = true
			t.nextLook = time.Now().Add(max(pause, firstRetry<<(t.tries-1)))
			if t.tries < unseenAfter {
				return // most are found in a moment: wait before calling it unseen
			}
		}
		if w.removeOutward(ctx, t) {
			return
		}
		if t.announced && !t.iface.Seen {
			return
		}
		// The name stays: the interface is in the network that it was in.
		t.iface.Seen, t.iface.Place, t.iface.View = false, netns.Place{}, netns.View{Peer: t.firstPeer}
		w.emitInterface(ctx, t)
		return
	}
	t.tries = 0
	if t.firstPeer == "" {
		t.firstPeer = firstName(view.Peer)
	}
	view.Peer = t.firstPeer
	if !t.inPort() {
		t.portDirty, t.iface.PortVLAN = false, 0
	}
	t.iface.Seen, t.iface.Place, t.iface.View = true, place, view
	w.emitInterface(ctx, t)
}

// open finds the netns behind an interface and looks into it. A place that was
// good before may by now be another netns: its id must still be the one the veth names.
func (w *Watcher) open(t *tracked) (netns.Place, netns.View, error) {
	place, ok := w.places[t.nsid]
	for rescanned := false; ; rescanned = true {
		if ok {
			view, err := w.lookAt(place, t)
			if err == nil || rescanned {
				return place, view, err
			}
		} else if rescanned {
			return place, netns.View{}, errNoPlace
		}
		if time.Since(w.scanned) < scanPause {
			return place, netns.View{}, errTooSoon
		}
		if err := w.scan(); err != nil {
			return place, netns.View{}, err
		}
		place, ok = w.places[t.nsid]
	}
}

// scan finds out anew where namespaces can be opened.
func (w *Watcher) scan() error {
	places, err := w.finder.Scan()
	if err != nil {
		return err
	}
	w.places, w.scanned = places, time.Now()
	return nil
}

var (
	errNoPlace = errors.New("no process and no name under /run/netns leads to it")
	errMoved   = errors.New("its name now means another netns")
	errTooSoon = errors.New("the last scan for namespaces was a moment ago")
)

func (w *Watcher) lookAt(place netns.Place, t *tracked) (netns.View, error) {
	file, err := os.Open(place.Path)
	if err != nil {
		return netns.View{}, err
	}
	defer file.Close()
	id, err := w.finder.ID(file)
	if err != nil {
		return netns.View{}, err
	}
	if id != t.nsid {
		return netns.View{}, errMoved
	}
	return netns.Look(file, t.peer)
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

// lookAtHost reads the node's own addresses and tells the agent of a difference.
func (w *Watcher) lookAtHost(ctx context.Context) {
	ways := func() (exits, error) { return w.exits, nil } // of the last resync
	host, err := listHostAddresses(ways, func(index int) bool {
		t := w.tracked[index]
		_, ignored := w.ignored[index]
		return ignored || t != nil && t.firstPeer != "" && t.firstPeer != PrimaryPeer
	})
	if err != nil {
		w.log.Warn("listing the node's own addresses failed, trying again at the next resync", "error", err)
		return
	}
	w.emit(ctx, Event{Kind: HostAddresses, Host: host})
}
