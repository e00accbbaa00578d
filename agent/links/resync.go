package links

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// resync compares all interfaces with the kernel's list.
func (w *Watcher) resync(ctx context.Context) error {
	links, err := netns.List(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	if w.exits, err = defaultRoutes(); err != nil {
		return err
	}
	alive := make(map[int]netlink.Link, len(links))
	clear(w.names)
	for _, link := range links {
		alive[link.Attrs().Index] = link
		w.names[link.Attrs().Index] = link.Attrs().Name // a bridge may come after its ports
	}
	w.listing = true
	for _, link := range links {
		w.upsert(ctx, link)
	}
	w.listing = false
	for index, t := range w.tracked {
		link := alive[index]
		if link == nil {
			w.remove(ctx, index)
			continue
		}
		w.inspect(ctx, t, link)
		t.portDirty = t.inPort() // its bridge may tell VLANs apart now, or did not answer
		// Changes of addresses are told; a look is for what is not, a name for example.
		if !t.iface.Seen || (w.resyncs+index)%looksApart == 0 {
			t.dirty = true
		}
	}
	w.resyncs++
	for index := range w.outward {
		if alive[index] == nil {
			w.forgetOutward(index)
		}
	}
	if len(w.outward) > 0 {
		// Nothing tells of a process that entered one of them.
		if err := w.scan(); err != nil {
			w.log.Warn("looking for namespaces failed, trying again at the next resync", "error", err)
		}
	}
	for index := range w.ignored {
		if alive[index] == nil {
			w.noLongerIgnored(index)
		}
	}
	if w.detached {
		// Not with every detach: a node that shuts its pods down has many at once.
		w.detached = false
		if _, err := w.opts.Observer.Prune(); err != nil {
			w.log.Warn("clearing the table of addresses failed, trying again after the next interface goes", "error", err)
		}
	}
	w.hostChanged()
	w.unobservedDirty = true
	w.unsupported = w.listUnsupported(links)
	return nil
}
