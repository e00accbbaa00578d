package links

import (
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// maxForeignLooks bounds how many namespaces without an observed interface one
// resync looks into.
const maxForeignLooks = 256

// unsupported lists the pod devices that have no host end we could observe: netkit
// on the host's side, and in namespaces that no observed interface leads to
// macvlan and ipvlan devices on the host's devices and physical ones (SR-IOV).
// Silence about a pod must mean that it was watched.
func (w *Watcher) unsupported(links []netlink.Link) []Interface {
	var found []Interface
	for _, link := range links {
		if attrs := link.Attrs(); link.Type() == "netkit" && attrs.NetNsID >= 0 {
			found = append(found, Interface{
				Name: attrs.Name, Index: attrs.Index, State: Unsupported,
				Reason: "netkit devices cannot be observed yet",
			})
		}
	}
	observed := make(map[uint64]bool, len(w.tracked))
	for _, t := range w.tracked {
		observed[t.iface.Place.Inode] = true
	}
	places, err := w.finder.Places()
	if err != nil {
		w.log.Warn("looking for devices that cannot be observed failed", "error", err)
		return found
	}
	looks := 0
	for _, place := range places {
		if observed[place.Inode] || looks == maxForeignLooks {
			continue
		}
		looks++
		for _, device := range foreignDevices(place) {
			found = append(found, Interface{
				Name: device.Name, Index: device.Index, State: Unsupported, Place: place,
				Reason: fmt.Sprintf("%s devices cannot be observed", device.Kind),
			})
		}
	}
	return found
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
