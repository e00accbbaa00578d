package links

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// defaultRoutes are the devices and the preferred sources of the node's default routes. The
// uplink of a node that is a container itself is a veth, and no pod is behind that one.
type defaultRoutes struct {
	devices map[int]bool
	sources map[netip.Addr]bool
}

func listDefaultRoutes() (defaultRoutes, error) {
	found := defaultRoutes{make(map[int]bool), make(map[netip.Addr]bool)}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netns.List("default routes", func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return defaultRoutes{}, err
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

// leadsElsewhere reports whether a link is a veth whose other end is in another netns, and that
// no default route uses: it leads into a pod, or is an uplink without a default route.
func (d defaultRoutes) leadsElsewhere(link netlink.Link) bool {
	return link.Type() == "veth" && link.Attrs().NetNsID >= 0 && !d.devices[link.Attrs().Index]
}

// uplinkSigns distinguish veths that lead out of the node from those that lead into pods. Where the
// node is a container, each network that it is on has a veth like a pod's, through which the
// addresses of others come in. The node has an address in the subnet of such a veth, or a
// bridge with the MAC and the default route that the veth had.
type uplinkSigns struct {
	subnets map[int]bool    // devices with an address in a subnet, by ifindex
	macs    map[string]bool // of the devices of default routes
}

func readUplinkSigns(routes defaultRoutes) (uplinkSigns, error) {
	addrs, err := listAddresses()
	if err != nil {
		return uplinkSigns{}, err
	}
	signs := uplinkSigns{make(map[int]bool), routes.macs()}
	for _, a := range addrs {
		// One without a subnet is what the host ends of routed pods have.
		if ones, bits := a.Mask.Size(); a.IP.IsGlobalUnicast() && ones < bits {
			signs.subnets[a.LinkIndex] = true
		}
	}
	return signs, nil
}

// include reports whether a veth is known to lead out of the node.
func (s uplinkSigns) include(index int, mac net.HardwareAddr) bool {
	return s.subnets[index] || s.macs[mac.String()]
}

// macs returns the MACs of the devices. A bridge or an Open vSwitch that has the uplink as a
// port also has its MAC, so that the network outside does not notice. A bridge whose MAC
// nobody has set has the lowest of all its ports: that one is no sign.
func (d defaultRoutes) macs() map[string]bool {
	found := make(map[string]bool)
	for index := range d.devices {
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			continue
		}
		mac := link.Attrs().HardwareAddr.String()
		for err == nil && link.Type() == "vlan" && link.Attrs().NetNsID < 0 { // it has that of the device below
			link, err = netlink.LinkByIndex(link.Attrs().ParentIndex)
		}
		if err != nil || link.Type() != "bridge" || macIsSet(link.Attrs().Name) {
			found[mac] = true
		}
	}
	return found
}

// macIsSet reports whether somebody has set the device's MAC, false if that cannot be read. The
// kernel shows it in sysfs only, and what is mounted at /sys may be that of another netns.
func macIsSet(device string) bool {
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
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/class/net/%s/addr_assign_type", mount, device))
	return err == nil && strings.TrimSpace(string(text)) == set
}

// judge sets a veth aside that leads out of the node, and observes one again that does not.
// One does if its netns was searched for long enough and never found, and it has the signs of
// an uplink: runtimes give addresses with a subnet to pods' host ends, too.
func (t *table) judge(veth *tracked, now time.Time) {
	var signs uplinkSigns
	if veth.firstPeer == "" && veth.scans.hopeless() && !t.found(veth.nsid) {
		var err error
		if signs, err = t.signs(); err != nil {
			t.log.Warn("looking for uplinks failed, trying again at the next resync", "error", err)
			return
		}
	}
	i := veth.iface
	switch isUplink := signs.include(i.Index, i.MAC); {
	case isUplink && veth.observed():
		t.log.Info("an interface is an uplink of the node and leads to no pod", "interface", i.Name)
		t.remove(i.Index, "interface "+i.Name+" leads out of the node")
		veth.iface = Interface{Name: i.Name, Index: i.Index, MAC: i.MAC, Master: i.Master, Up: i.Up}
		t.setAside(veth, Uplink, "it leads out of the node, to no pod")
	case !isUplink && i.State == Uplink:
		t.unobservedDue = true
		veth.iface.Listed = true
		t.add(veth, now)
	}
}
