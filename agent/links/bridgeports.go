package links

import (
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
)

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
