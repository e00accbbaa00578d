package links

import (
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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

// DefaultVLAN is the VLAN of ports that nobody configured (default_pvid, net/bridge/br_vlan.c).
const DefaultVLAN = 1

// untaggedVLAN returns the VLAN of untagged packets on a bridge port, 0 if there is none.
func untaggedVLAN(vlans []*nl.BridgeVlanInfo) uint16 {
	for _, v := range vlans {
		if v.PortVID() {
			return v.Vid
		}
	}
	return 0
}

// filters reports whether a veth is the port of a bridge that distinguishes VLANs.
func (t *table) filters(veth *tracked) bool { return t.devices[veth.master].filters }

// portsDue returns the veths whose bridge ports may have another VLAN now.
func (t *table) portsDue(now time.Time) (due []*tracked) {
	for _, veth := range t.veths {
		if veth.iface.Seen && (veth.portDue || veth.portAgain.ready(now)) {
			due = append(due, veth)
		}
	}
	return due
}

// readPorts updates the VLANs of the ports of these veths. It lists all ports once, because the
// kernel holds RTNL meanwhile. If that fails, the list is repeated after listRetry.
func (t *table) readPorts(due []*tracked, now time.Time, list func() (map[int32][]*nl.BridgeVlanInfo, error)) {
	list = sync.OnceValues(list)
	for _, veth := range due {
		veth.portDue, veth.portAgain = false, pacer{}
		before, i := veth.iface.PortVLAN, &veth.iface
		if !t.filters(veth) {
			i.PortVLAN = 0
		} else if ports, err := list(); err == nil {
			i.PortVLAN = untaggedVLAN(ports[int32(i.Index)])
		} else {
			t.log.Debug("listing the VLANs of bridge ports failed", "interface", i.Name, "error", err)
			veth.portAgain.retry(now, listRetry)
		}
		if !veth.announced() || i.PortVLAN != before {
			t.announce(veth)
		}
	}
}
