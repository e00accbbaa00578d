package observe

import (
	"net/netip"
	"strconv"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// baseNetwork names the network of untagged packets on an interface. It depends on
// what the interface was first: a pod that renames its eth0 stays where it is, and so does
// one whose netns is not seen any more.
//
// Only a pod's primary interface belongs to the cluster's network. A local
// container engine's bridge is a network of its own, because every node has the
// same 172.17.0.0/16. So is each secondary interface name, told apart by its
// bridge or VRF: two attachments of one pod network may use one subnet lawfully. All
// switches and all logical networks of Open vSwitch look like one bridge, though their
// subnets may well be the same: there each secondary interface is alone.
func baseNetwork(i *links.Interface) string {
	switch {
	case links.LocalBridge(i.Master):
		return i.Master
	case i.View.Peer == "", i.View.Peer == links.PrimaryPeer:
		// One whose netns was never seen is most likely a primary one, too.
		return config.DefaultNetwork
	}
	if i.Master == links.OpenVSwitch {
		return i.View.Peer + "@" + i.FirstName
	}
	if i.Master != "" {
		return i.View.Peer + "@" + i.Master
	}
	return i.View.Peer
}

// subject is an interface as the configuration's rules see it.
func subject(i *links.Interface) config.Subject {
	return config.Subject{Interface: i.Name, Peer: i.View.Peer, Bridge: i.Master}
}

// sameNetworks says whether a change of an interface leaves its addresses where they are.
func sameNetworks(c *config.Config, before, after *links.Interface) bool {
	return baseNetwork(before) == baseNetwork(after) && before.PortVLAN == after.PortVLAN && c.SameRules(subject(before), subject(after))
}

// hostKey is an address of the node itself in its network.
func hostKey(c *config.Config, address links.HostAddress) detector.Key {
	key := detector.Key{Network: config.DefaultNetwork, IP: address.IP}
	rule, ok := c.HostNetwork(address.Device, address.IP)
	if !ok && address.Master != "" {
		rule, ok = c.HostNetwork(address.Master, address.IP) // in a VRF, say
	}
	if ok {
		key.Network = rule.Name
	}
	return key
}

// network names the network of an address on an interface: the one that the
// configuration declares, else the base network. VLAN tags are added: "default.100",
// "default.200.100" with the outer tag first. The bridge may be what adds the tag, but not
// to what the configuration says is one network.
func network(c *config.Config, i *links.Interface, vlan bpf.VLAN, ip netip.Addr) string {
	name := baseNetwork(i)
	if rule, ok := c.Network(subject(i), ip); ok {
		name = rule.Name
	} else if vlan.Outer == 0 {
		vlan.Outer = i.PortVLAN
	}
	for _, tag := range []uint16{vlan.Outer, vlan.Inner} {
		if tag != 0 {
			name += "." + strconv.Itoa(int(tag))
		}
	}
	return name
}
