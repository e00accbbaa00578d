package links

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	// After a list of the node's own addresses or routes that took t, the next starts hostPauseFactor * t later at
	// the earliest, so lists use at most 1/50 of a core: pods whose host ends have the gateway's address
	// change that list all the time. portPauseFactor is the same for the VLANs of ports, which change
	// when devices go up and down.
	hostPauseFactor = 50
	portPauseFactor = 20
)

// scheduleHost schedules a list of the node's own addresses. It also clears the cached signs of uplinks,
// which are read again when they are needed.
func (w *Watcher) scheduleHost() {
	w.hostPacer.due, w.hostResynced = true, false
	w.table.signs = sync.OnceValues(func() (uplinkSigns, error) { return readUplinkSigns(w.table.routes) })
}

// retryHost is scheduleHost after a pause, except before the first list.
func (w *Watcher) retryHost(now time.Time) {
	w.scheduleHost()
	if !w.hostPacer.next.IsZero() {
		w.hostPacer.retry(now, listRetry)
	}
}

// listRoutes lists the default routes. Other devices of theirs may make interfaces uplinks, or lead them into pods.
func (w *Watcher) listRoutes(ctx context.Context, now time.Time) {
	began := time.Now()
	routes, err := listDefaultRoutes()
	if err == nil && !maps.Equal(routes.devices, w.table.routes.devices) {
		off := w.table.found.off
		w.table.found.off = true // no event of an interface tells of what this list finds
		_, err = w.list(ctx, now)
		w.table.found.off = off
	} else if err == nil {
		w.table.routes = routes
		w.scheduleHost() // the main addresses may be others
	}
	w.routesPacer.pauseAfter(began, hostPauseFactor)
	if err != nil {
		w.opts.Log.Debug("listing the default routes failed", "error", err)
		w.routesPacer.retry(time.Now(), listRetry)
	}
}

// listHost lists the node's own addresses and sends them.
func (w *Watcher) listHost(ctx context.Context) error {
	routes := func() (defaultRoutes, error) { return w.table.routes, nil }
	// The addresses on the host ends of ignored interfaces are not the node's in the networks of pods.
	ignored := func(index int) bool { veth := w.table.veths[index]; return veth != nil && veth.iface.State == Ignored }
	host, err := listHostAddresses(routes, ignored)
	if err != nil {
		return err
	}
	w.hostHash.Reset()
	for _, a := range host {
		fmt.Fprintln(&w.hostHash, a.IP, a.Index, a.Device, a.Master, a.Parent, a.MAC)
	}
	if sum := w.hostHash.Sum64(); sum != w.hostSum {
		if w.hostResynced {
			w.table.found.expect(foundHostAddress, scanNetns(ownNetns), time.Now())
		}
		w.hostSum = sum
	}
	w.hostResynced = false
	mainFirst(host, w.table.routes, listSources())
	w.emit(ctx, Event{Kind: HostAddresses, Host: host})
	return nil
}
