package links

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

const (
	// lookPause is the least time between two looks into one netns. A pod that changes
	// its addresses all the time has a few quick looks, then lookRate a second.
	lookPause = 10 * time.Millisecond
	lookRate  = 5
	lookBurst = 10
	// lookShare bounds looks at one large netns to a twentieth of a core.
	lookShare = 20
	// firstRetry is the pause after the first look that failed; it doubles.
	firstRetry = 20 * time.Millisecond
	// scanPause is the least time between two scans for namespaces.
	scanPause = 20 * time.Millisecond
	// unseenTries is how often a netns that is not found is looked for before the
	// next resync; a runtime may name it only after it has made the veth.
	unseenTries = 8
)

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
	before, known := w.places[t.nsid]
	if known {
		view, err := w.lookAt(before, t)
		if err == nil || errors.Is(err, netns.ErrNoPeer) {
			return before, view, err // it is the right netns
		}
	}
	// A runtime names what it makes. The long way leads past every process of the node.
	if w.places != nil {
		if err := w.scanNames(); err != nil {
			return before, netns.View{}, err
		}
		if place, ok := w.places[t.nsid]; ok && (!known || place != before) {
			view, err := w.lookAt(place, t)
			if err == nil || errors.Is(err, netns.ErrNoPeer) {
				return place, view, err
			}
		}
	}
	if time.Since(w.scanned) < scanPause {
		return before, netns.View{}, errTooSoon
	}
	if err := w.scan(); err != nil {
		return before, netns.View{}, err
	}
	place, ok := w.places[t.nsid]
	if !ok {
		return place, netns.View{}, errNoPlace
	}
	view, err := w.lookAt(place, t)
	return place, view, err
}

// scanNames takes in the names that are new.
func (w *Watcher) scanNames() error {
	places, err := w.finder.ScanNames()
	if err != nil {
		return err
	}
	for id, place := range places {
		if known, ok := w.places[id]; !ok || known.Path != place.Path {
			w.places[id] = place
		}
	}
	return nil
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
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return netns.View{}, err
	}
	id, err := w.finder.ID(file)
	if err != nil {
		return netns.View{}, err
	}
	// A name that is made again may mean a netns that got the same id again.
	if id != t.nsid || st.Ino != place.Inode {
		return netns.View{}, errMoved
	}
	return netns.Look(file, t.peer)
}
