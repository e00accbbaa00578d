package links

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// exits are the ways out of the node, as its default routes name them. A node that is a
// container itself has a veth for an uplink, and no pod is behind that one.
type exits struct {
	devices map[int]bool
	sources map[netip.Addr]bool // the preferred ones
}

// macs returns the addresses of the devices. A bridge or an OVS switch that took the
// uplink for a port has the uplink's, so that the network outside does not notice. A bridge
// to which nobody gave one has the lowest of all its ports: that says nothing.
func (e exits) macs() map[string]bool {
	found := make(map[string]bool)
	for index := range e.devices {
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			continue
		}
		mac := link.Attrs().HardwareAddr.String()
		for err == nil && link.Type() == "vlan" && link.Attrs().NetNsID < 0 { // it took that of the device below
			link, err = netlink.LinkByIndex(link.Attrs().ParentIndex)
		}
		if err == nil && link.Type() == "bridge" && !pinned(link.Attrs().Name) {
			continue
		}
		found[mac] = true
	}
	return found
}

// pinned says whether somebody gave the device its MAC, false if that cannot be read. The
// kernel tells it in sysfs only, and /sys may be that of another netns.
func pinned(device string) bool {
	const set = "3" // NET_ADDR_SET, linux/netdevice.h
	filesystem, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(filesystem)
	if err := unix.FsconfigCreate(filesystem); err != nil {
		return false
	}
	mount, err := unix.Fsmount(filesystem, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return false
	}
	defer unix.Close(mount)
	file, err := unix.Openat(mount, "class/net/"+device+"/addr_assign_type", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(file)
	text := make([]byte, 8)
	n, err := unix.Read(file, text)
	return err == nil && strings.TrimSpace(string(text[:n])) == set
}

// defaultRoutes asks the kernel for the ways out of the node.
func defaultRoutes() (exits, error) {
	found := exits{make(map[int]bool), make(map[netip.Addr]bool)}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netns.List(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return exits{}, fmt.Errorf("listing default routes: %w", err)
		}
		for _, route := range routes {
			found.devices[route.LinkIndex] = true
			for _, hop := range route.MultiPath {
				found.devices[hop.LinkIndex] = true
			}
			if source, ok := netip.AddrFromSlice(route.Src); ok {
				found.sources[source.Unmap()] = true
			}
		}
	}
	return found, nil
}
