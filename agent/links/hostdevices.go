package links

import (
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostDevice is any device of the node.
type hostDevice struct {
	name    string
	mac     string
	filters bool // it is a bridge with vlan_filtering
	up      bool
	master  int
}

func (t *table) addDevice(link netlink.Link) {
	attrs := link.Attrs()
	index := attrs.Index
	device := hostDevice{name: attrs.Name, up: attrs.RawFlags&unix.IFF_UP != 0, mac: string(attrs.HardwareAddr), master: attrs.MasterIndex}
	if bridge, ok := link.(*netlink.Bridge); ok {
		device.filters = bridge.VlanFiltering != nil && *bridge.VlanFiltering
	}
	if before, ok := t.devices[index]; ok && before != device {
		t.hostDue = t.hostDue || t.veths[index] == nil && (before.name != device.name || before.mac != device.mac || before.master != device.master)
		t.routesDue = t.routesDue || before.up && !device.up && t.routes.devices[index] // no event tells of IPv4 routes that go
		for _, veth := range t.veths {
			if veth.master == index {
				veth.portDue = veth.portDue || before.filters != device.filters
				if veth.iface.Master != device.name {
					veth.iface.Master = device.name
					t.announce(veth)
				}
			}
			if veth.ns != nil && before.name != device.name && strings.HasPrefix(veth.iface.Master, before.name) {
				veth.ns.scans.due = true // its device sends by this one, which has another name
			}
		}
	}
	t.devices[index] = device
}

// search requests a search for namespaces if a device of a pod may be on this device of the node, or may have been this one: the kernel
// sends a message of a device when one comes on it (NETDEV_CHANGEUPPER), and when it leaves the node's netns.
func (t *table) search(link netlink.Link) {
	attrs, kind := link.Attrs(), link.Type()
	switch before := t.devices[attrs.Index]; {
	case kind == "veth" || kind == "netkit":
		if attrs.ParentIndex == 0 || t.routes.leadsToNetns(link) { // it leads into a pod, or did
			return
		}
	case kind == "bridge" && before.mac != string(attrs.HardwareAddr): // it is that of another port
		return
	}
	t.searchDue = true
	t.found.drop(foundDevice)
}
