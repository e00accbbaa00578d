package links

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// defaultRoutes are the devices and the preferred sources of the node's default routes.
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

// leadsToNetns reports whether a link is one end of a pair whose other end is in another netns, and which no
// default route uses: it leads into a pod, or is an uplink without a default route.
func (d defaultRoutes) leadsToNetns(link netlink.Link) bool {
	netkit, ok := link.(*netlink.Netkit)
	pair := link.Type() == "veth" || ok && netkit.IsPrimary() // see unsupportedNetkit
	return pair && link.Attrs().NetNsID >= 0 && !d.devices[link.Attrs().Index]
}

// uplinkSigns distinguish veths that lead out of the node from those that lead into pods. A node that
// is a container has a veth like a pod's for each of its networks, which carries the packets of other
// nodes. Such a veth has an address with a subnet, or a bridge took over its MAC and its default route. It may have neither, as the port of
// a bridge, and leads into the same netns as one that has, or as the device of a default route: no pod is in that netns.
type uplinkSigns struct {
	subnets map[int]bool    // devices with an address in a subnet, by ifindex
	macs    map[string]bool // of the devices of default routes
	outside map[int]bool    // the ids of the namespaces that the devices above lead into
}

func readUplinkSigns(routes defaultRoutes) (uplinkSigns, error) {
	addrs, err := listAddresses()
	if err != nil {
		return uplinkSigns{}, err
	}
	links, err := listLinks()
	if err != nil {
		return uplinkSigns{}, err
	}
	signs := uplinkSigns{make(map[int]bool), routes.macs(), make(map[int]bool)}
	for _, a := range addrs {
		// The host ends of routed pods have addresses without a subnet.
		if ones, bits := a.Mask.Size(); a.IP.IsGlobalUnicast() && ones < bits {
			signs.subnets[a.LinkIndex] = true
		}
	}
	for _, link := range links {
		if a := link.Attrs(); a.NetNsID >= 0 && (routes.devices[a.Index] || signs.match(a.Index, a.NetNsID, a.HardwareAddr)) {
			signs.outside[a.NetNsID] = true
		}
	}
	return signs, nil
}

// match reports whether a veth into the netns with that id has the signs of an uplink.
func (s uplinkSigns) match(index, nsid int, mac net.HardwareAddr) bool {
	return s.subnets[index] || s.macs[mac.String()] || s.outside[nsid]
}

// macs returns the MACs of the devices. A bridge, also one of Open vSwitch, that took over an uplink has
// the uplink's MAC. A bridge whose MAC was not set has the lowest of its ports: that is no sign.
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

// macIsSet reports whether the device's MAC was set from user space, false if that cannot be read. Only
// sysfs has that, and /sys may belong to another netns.
func macIsSet(device string) bool {
	const set = "3" // NET_ADDR_SET, linux/netdevice.h
	sysfs, err := netns.OpenSysfs()
	if err != nil {
		return false
	}
	defer sysfs.Close()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/class/net/%s/addr_assign_type", sysfs.Fd(), device))
	return err == nil && strings.TrimSpace(string(text)) == set
}

// classify excludes a veth that leads out of the node, and observes it again when it does not. It
// leads out if its netns was searched for and never found, not even behind another veth, and it has the signs of an uplink. The
// signs alone prove nothing: runtimes give addresses with a subnet to pods' host ends, too.
func (t *table) classify(veth *tracked, now time.Time) {
	var signs uplinkSigns
	if veth.scans.unseen() && !t.reachable(veth.nsid) && !t.wasFound(veth.nsid) {
		var err error
		if signs, err = t.signs(); err != nil {
			t.log.Debug("identifying uplinks failed", "error", err)
			t.hostDue = true
			return
		}
	}
	i := veth.iface
	switch isUplink := signs.match(i.Index, veth.nsid, i.MAC); {
	case isUplink && veth.observed():
		t.log.Info("interface is an uplink of the node and leads to no pod", "interface", i.Name)
		t.remove(i.Index, "interface "+i.Name+" leads out of the node")
		veth.iface = Interface{Name: i.Name, Index: i.Index, Netkit: i.Netkit, L3: i.L3, MAC: i.MAC, Master: i.Master, Up: i.Up}
		t.exclude(veth, Uplink, "it leads out of the node, to no pod")
	case !isUplink && i.State == Uplink:
		t.unobservedDue = true
		veth.iface.Listed = true
		t.add(veth, now)
	}
}

// wasFound reports whether the netns with that id was found once.
func (t *table) wasFound(nsid int) bool {
	for _, veth := range t.veths {
		if veth.nsid == nsid && veth.found {
			return true
		}
	}
	return false
}
