package links

import (
	"log/slog"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// A list counts what it finds, unless an event tells of it a moment later or the watcher has just begun.
func TestFound(t *testing.T) {
	list := func(h *harness, links ...netlink.Link) { h.list(links, h.now) }
	scan := func(h *harness, addresses ...netns.Address) {
		h.scanned(h.veths[7], netns.Ref{}, netns.View{Peer: "eth0", Addresses: addresses}, nil, h.now)
	}
	for name, test := range map[string]struct {
		do   func(h *harness)
		want [len(foundNames)]uint64
	}{
		"nothing":            {func(h *harness) { list(h, pod()) }, [len(foundNames)]uint64{}},
		"a new pair":         {func(h *harness) { list(h, pod(), pod(func(a *netlink.LinkAttrs) { a.Index = 8 })) }, [len(foundNames)]uint64{foundInterface: 1}},
		"one that is gone":   {func(h *harness) { list(h) }, [len(foundNames)]uint64{foundInterface: 1}},
		"another name":       {func(h *harness) { list(h, pod(named("new"))) }, [len(foundNames)]uint64{foundInterface: 1}},
		"another peer":       {func(h *harness) { list(h, pod(func(a *netlink.LinkAttrs) { a.NetNsID = 9 })) }, [len(foundNames)]uint64{foundInterface: 1}},
		"its event is late":  {func(h *harness) { list(h, pod(named("new"))); h.event(pod(named("new"))) }, [len(foundNames)]uint64{}},
		"a default route":    {func(h *harness) { h.routes.devices = map[int]bool{7: true}; list(h, pod()) }, [len(foundNames)]uint64{}},
		"the watcher begins": {func(h *harness) { h.found.off = true; list(h) }, [len(foundNames)]uint64{}},
		"an address": {
			func(h *harness) { h.veths[7].resynced = true; scan(h, netns.Address{Where: netns.OnPeer}) }, [len(foundNames)]uint64{foundAddress: 1},
		},
		"an address, by an event": {func(h *harness) {
			h.veths[7].resynced = true
			h.veths[7].changed()
			scan(h, netns.Address{Where: netns.OnPeer})
		}, [len(foundNames)]uint64{}},
		"an address whose event is late": {func(h *harness) {
			h.veths[7].resynced = true
			scan(h, netns.Address{Where: netns.OnPeer})
			h.found.came(scanNetns(3))
		}, [len(foundNames)]uint64{}},
		"the netns": {func(h *harness) { h.failScans(); h.veths[7].resynced = true; scan(h) }, [len(foundNames)]uint64{foundNetns: 1}},
		"a device": {func(h *harness) {
			h.setInside(&namespace{nsid: 1, resynced: true, devices: []netns.Device{{Name: "a", Index: 2, Kind: "macvlan"}}}, true, h.now)
		}, [len(foundNames)]uint64{foundDevice: 1}},
	} {
		h := newHarness(t)
		h.found.off = true
		list(h, pod())
		h.found.off = false
		h.scanFinds("eth0")
		test.do(h)
		log := slog.New(slog.DiscardHandler)
		later := h.now.Add(time.Hour)
		next := h.found.settle(log, h.now, later)
		if waits := test.want != [len(foundNames)]uint64{}; waits != next.Equal(h.now.Add(eventTime)) {
			t.Errorf("%s: counted in %v", name, next.Sub(h.now))
		}
		h.found.settle(log, h.now.Add(eventTime), later)
		h.found.settle(log, later, later) // counts nothing twice
		for kind, want := range test.want {
			if got := h.found.counts[kind].Load(); got != want {
				t.Errorf("%s: %d of %s, want %d", name, got, foundNames[kind], want)
			}
		}
	}
}
