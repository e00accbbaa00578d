package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kinds of devices that not every kernel has.
const (
	VLAN    = "vlan"
	Bond    = "bond"
	VRF     = "vrf"
	Dummy   = "dummy"
	Macvlan = "macvlan"
	IPVlan  = "ipvlan"
	OVS     = "openvswitch"
)

// HasDevices returns whether the machine has a kind of device.
func (l *Lab) HasDevices(kind string) (bool, error) {
	if kind == OVS { // has no type of link, and needs programs
		_, err := netlink.GenlFamilyGet("ovs_datapath")
		_, missing := exec.LookPath("ovs-vswitchd")
		return err == nil && missing == nil, nil
	}
	own := attrs("probe", nil)
	if kind == IPVlan || kind == Macvlan {
		own.ParentIndex = 1 // lo, on which none can be
	}
	err := l.hub.nl.LinkAdd(&netlink.GenericLink{LinkAttrs: own, LinkType: kind})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.EINVAL): // it wants to know more: which VLAN, which table
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look for %s devices: %w", kind, err)
	}
	return true, l.hub.change("probe", "delete", l.hub.nl.LinkDel)
}

// uplinkVLAN is the VLAN of uplinks that are VLAN devices.
const uplinkVLAN = 77

// uplinkName is the device of the node that has its own addresses and the default routes.
func (l *Lab) uplinkName() string {
	switch l.UplinkKind {
	case VLAN:
		return fmt.Sprint(uplink, ".", uplinkVLAN)
	case Bond:
		return "bond0"
	}
	return uplink
}

// addUplink gives the node its own addresses, on a device on top of the veth to the switch unless it is that veth. Then nothing on
// the node leads to the other end of the veth, as with a network card.
func (n *Node) addUplink(hub *Netns, addrs []netip.Prefix) error {
	if n.lab.UplinkKind == "" {
		var errs []error
		for _, a := range addrs {
			errs = append(errs, n.addAddr(uplink, a))
		}
		return errors.Join(errs...)
	}
	if hub.thread == 0 {
		if err := hub.park(); err != nil {
			return err
		}
	}
	if n.lab.UplinkKind == VLAN {
		return errors.Join(hub.addVLAN("br0", uplinkVLAN, gateway, gateway6), n.addVLAN(uplink, uplinkVLAN, addrs...))
	}
	bond := netlink.NewLinkBond(attrs(n.lab.uplinkName(), nil))
	bond.Mode, bond.Miimon = netlink.BOND_MODE_ACTIVE_BACKUP, 10
	return errors.Join(n.addDevice(bond, addrs...), n.down(uplink), n.enslave(uplink, bond.Name), n.settled(bond.Name))
}

// addVLAN makes a VLAN device, which is called as its parent and the VLAN, unless it exists.
func (n *Netns) addVLAN(parent string, id int, addrs ...netip.Prefix) error {
	index, err := n.Ifindex(parent)
	if err != nil {
		return err
	}
	name := attrs(fmt.Sprint(parent, ".", id), nil)
	name.ParentIndex = index
	if _, err := n.Ifindex(name.Name); err == nil {
		return nil
	}
	return n.addDevice(&netlink.Vlan{LinkAttrs: name, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}, addrs...)
}

// AddVLAN makes a VLAN device on the pod's first interface, with addresses of hosts in subnets of 24 and 64 bits, and returns
// its name.
func (p *Pod) AddVLAN(id int, addrs ...netip.Addr) (device string, err error) {
	var prefixes []netip.Prefix
	for _, a := range addrs {
		prefixes = append(prefixes, netip.PrefixFrom(a, map[bool]int{true: 24, false: 64}[a.Is4()]))
	}
	return fmt.Sprint(p.Interface, ".", id), p.addVLAN(p.Interface, id, prefixes...)
}

// AddVRF makes a VRF with a routing table, in which the default routes are those of the node.
func (n *Node) AddVRF(name string, table uint32) error {
	err := n.addDevice(&netlink.Vrf{LinkAttrs: attrs(name, nil), Table: table})
	for _, gw := range []netip.Addr{gateway.Addr(), gateway6.Addr()} {
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if gw.Is4() {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		err = errors.Join(err, n.routeIn(int(table), n.lab.uplinkName(), all, gw))
	}
	return err
}

// table is the routing table of a device: that of its VRF, or 0, the main one.
func (n *Netns) table(device netlink.Link) int {
	master, err := n.nl.LinkByIndex(device.Attrs().MasterIndex)
	if vrf, ok := master.(*netlink.Vrf); err == nil && ok {
		return int(vrf.Table)
	}
	return 0
}
