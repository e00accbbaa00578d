package links

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// Surveyed is a pod interface that a [Watcher] would observe.
type Surveyed struct {
	Name string
	// Peer is the index of its other end there.
	Peer int
	// Place is where the netns behind it can be opened; Found is false when nothing leads to it.
	Place netns.Place
	Found bool
}

// Survey lists, once and without touching any of them, the interfaces that a [Watcher] of
// the calling thread's netns would observe, and the pod devices that it could not.
func Survey() (pods []Surveyed, unsupported []Interface, err error) {
	all, err := netns.List(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("listing links: %w", err)
	}
	out, err := defaultRoutes()
	if err != nil {
		return nil, nil, err
	}
	finder, err := netns.NewFinder()
	if err != nil {
		return nil, nil, err
	}
	defer finder.Close()
	places, err := finder.Scan()
	if err != nil {
		return nil, nil, err
	}
	known := findUplinks(out)
	if known.err != nil {
		return nil, nil, known.err
	}
	observed := make(map[uint64]bool)
	for _, link := range all {
		attrs := link.Attrs()
		if !isPod(link, out.devices) {
			continue
		}
		place, found := places[attrs.NetNsID]
		if !found && known.include(attrs.Index, attrs.HardwareAddr) {
			continue // as Watcher.leadsOut says
		}
		observed[place.Inode] = true
		pods = append(pods, Surveyed{Name: attrs.Name, Peer: attrs.ParentIndex, Place: place, Found: found})
	}
	unsupported, err = unsupportedDevices(all, observed, finder, foreignDevices)
	return pods, unsupported, err
}

// isPod says whether a link leads into a pod: a veth whose other end is in another netns,
// and that the node's default route does not leave by.
func isPod(link netlink.Link, uplinks map[int]bool) bool {
	return link.Type() == "veth" && link.Attrs().NetNsID >= 0 && !uplinks[link.Attrs().Index]
}

// CanWatch returns nil if this process may watch the addresses of all namespaces, and an
// error that says what it takes otherwise.
func CanWatch() error {
	watch, err := openAddressWatch()
	if err != nil {
		return err
	}
	return watch.Close()
}
