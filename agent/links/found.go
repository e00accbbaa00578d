package links

import (
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/agent/netns"
)

// found is a kind of what a resync finds although an event should have told of it.
type found uint8

// Their names are values of a metric.
const (
	foundInterface   found = iota // a pair that came, went or changed
	foundNetns                    // the netns behind an interface, which was unseen
	foundAddress                  // addresses behind an interface
	foundDevice                   // a device that has no end on the node, came or went
	foundHostAddress              // addresses of the node itself
	foundRoute                    // default routes
	foundProgram                  // the observer was not attached any more, or can be attached again
)

var foundNames = [...]string{"interface", "netns", "address", "device", "host_address", "route", "program"}

// eventTime is how long an event may take: what a resync finds before its event was read counts only if none comes.
const eventTime = time.Second

// findings counts what resyncs find, by kind. Only counts may be read while the watcher runs.
type findings struct {
	counts  [len(foundNames)]atomic.Uint64
	off     bool                  // at the first list after a subscription, which finds what is there
	waiting map[finding]time.Time // until when an event may come
}

// finding says which event has to come: a link's has its index, others are requests.
type finding struct {
	kind  found
	event any
}

// link is the event of a link with that index.
type link int

// expect counts what was found unless its event comes within eventTime.
func (f *findings) expect(kind found, event any, now time.Time) {
	if f.off {
		return
	}
	if f.waiting == nil {
		f.waiting = make(map[finding]time.Time)
	}
	f.waiting[finding{kind, event}] = now.Add(eventTime)
}

// came notes an event.
func (f *findings) came(event any) {
	if len(f.waiting) > 0 {
		for kind := range foundNames {
			delete(f.waiting, finding{found(kind), event})
		}
	}
}

// drop notes an event that explains all of a kind.
func (f *findings) drop(kind found) {
	maps.DeleteFunc(f.waiting, func(finding finding, _ time.Time) bool { return finding.kind == kind })
}

// settle counts those whose event has not come, and returns when to call it again, at most at next.
func (f *findings) settle(log *slog.Logger, now, next time.Time) time.Time {
	for finding, until := range f.waiting {
		switch {
		case !now.Before(until):
			log.Debug("a resync found what no event told of", "kind", foundNames[finding.kind], "event", finding.event)
			f.counts[finding.kind].Add(1)
			delete(f.waiting, finding)
		case until.Before(next):
			next = until
		}
	}
	return next
}

// resynced notes what a scan has found that was due because of a resync.
func (t *table) resynced(veth *tracked, view netns.View, err error, now time.Time) {
	veth.resynced = false
	switch before := veth.iface; {
	case err != nil || !veth.announced():
	case !before.Seen:
		t.found.expect(foundNetns, scanNetns(veth.nsid), now)
	case !slices.EqualFunc(before.View.Addresses, view.Addresses, netns.Address.Equal):
		t.found.expect(foundAddress, scanNetns(veth.nsid), now)
	}
}

// Found returns how often a resync found what no event told of, by kind. Safe for concurrent use.
func (w *Watcher) Found() map[string]uint64 {
	all := make(map[string]uint64, len(foundNames))
	for kind, name := range foundNames {
		all[name] = w.table.found.counts[kind].Load()
	}
	return all
}
