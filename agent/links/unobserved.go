package links

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// maxForeignLooks bounds how many namespaces without an observed interface one
// resync looks into.
const maxForeignLooks = 256

// emitUnobserved tells the agent of everything that is not observed.
func (w *Watcher) emitUnobserved(ctx context.Context) {
	all := slices.Clone(w.unsupported)
	for _, index := range slices.Sorted(maps.Keys(w.ignored)) {
		all = append(all, Interface{
			Name: w.ignored[index], Index: index, State: Ignored, Reason: "the configuration says to ignore it",
		})
	}
	for _, index := range slices.Sorted(maps.Keys(w.outward)) {
		all = append(all, Interface{
			Name: w.outward[index].name, Index: index, State: Uplink, Reason: "it leads out of the node, to no pod",
		})
	}
	w.emit(ctx, Event{Kind: Unobserved, Unobserved: all})
}

// listUnsupported lists the pod devices that have no host end we could observe.
func (w *Watcher) listUnsupported(links []netlink.Link) []Interface {
	observed := make(map[uint64]bool, len(w.tracked))
	for _, t := range w.tracked {
		observed[t.iface.Place.Inode] = true
	}
	looks := 0
	before := w.foreign
	w.foreign = make(map[uint64]foreign, len(before))
	found, err := unsupportedDevices(links, observed, w.finder, func(place netns.Place) []netns.Device {
		f := before[place.Inode]
		if f.path != place.Path {
			f = foreign{path: place.Path}
		}
		// One that was just made may not have its devices yet.
		if (f.looks < 2 || (w.resyncs+int(place.Inode))%looksApart == 0) && looks < maxForeignLooks {
			looks++
			f.looks++
			f.devices = foreignDevices(place)
		}
		w.foreign[place.Inode] = f
		return f.devices
	})
	if err != nil {
		w.log.Warn("looking for devices that cannot be observed failed", "error", err)
	}
	return found
}

// foreign is a netns that no observed interface leads to, and what it had at the last look.
type foreign struct {
	path    string
	looks   int
	devices []netns.Device
}

// unsupportedDevices finds netkit on the host's side, and in namespaces that no observed
// interface leads to macvlan and ipvlan devices on the host's devices and physical ones
// (SR-IOV), which look lists. Silence about a pod must mean that it was watched. observed
// are inodes. With an error comes what was found without the namespaces.
func unsupportedDevices(
	links []netlink.Link, observed map[uint64]bool, finder *netns.Finder, look func(netns.Place) []netns.Device,
) ([]Interface, error) {
	var found []Interface
	for _, link := range links {
		if attrs := link.Attrs(); link.Type() == "netkit" && attrs.NetNsID >= 0 {
			found = append(found, Interface{
				Name: attrs.Name, Index: attrs.Index, State: Unsupported,
				Reason: "netkit devices cannot be observed yet",
			})
		}
	}
	places, err := finder.Places()
	if err != nil {
		return found, err
	}
	for _, place := range places {
		if observed[place.Inode] {
			continue
		}
		for _, device := range look(place) {
			found = append(found, Interface{
				Name: device.Name, Index: device.Index, State: Unsupported, Place: place,
				Reason: fmt.Sprintf("%s devices cannot be observed", device.Kind),
			})
		}
	}
	return found, nil
}

func foreignDevices(place netns.Place) []netns.Device {
	file, err := os.Open(place.Path)
	if err != nil {
		return nil
	}
	defer file.Close()
	devices, err := netns.DevicesOnHost(file)
	if err != nil {
		return nil // it went away
	}
	if place.Name == "" {
		// A physical device says nothing in a netns that no runtime has named: it may
		// be another machine's root, seen from inside a test.
		devices = slices.DeleteFunc(devices, func(d netns.Device) bool { return d.Kind == netns.Physical })
	}
	return devices
}
