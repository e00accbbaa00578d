package observe

import (
	"net/netip"
	"strconv"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// baseNetwork names the network of untagged packets on an interface. It depends on the first state of
// the interface: it stays the same if a pod renames its eth0, or its netns cannot be seen any more.
//
// Only a pod's primary interface belongs to the cluster's network. The bridge of a local container
// engine is a network of its own, because every node has the same 172.17.0.0/16. So is each name of a
// secondary interface on each bridge or VRF: two attachments of one pod network may use one subnet
// lawfully. All switches and logical networks of Open vSwitch look like one bridge, and their subnets
// may be the same, so there each secondary interface is a network of its own.
func baseNetwork(i *links.Interface) string {
	switch {
	case links.LocalBridge(i.Master):
		return i.Master
	case i.View.Peer == "", i.View.Peer == links.PrimaryPeer:
		// An interface whose netns was never seen is most likely a primary one.
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

// subject is what the rules of the configuration match.
func subject(i *links.Interface) config.Subject {
	return config.Subject{Interface: i.Name, Peer: i.View.Peer, Bridge: i.Master}
}

// sameNetworks reports whether a change of an interface leaves its addresses in their networks.
func sameNetworks(c *config.Config, before, after *links.Interface) bool {
	return baseNetwork(before) == baseNetwork(after) && before.PortVLAN == after.PortVLAN && c.SameRules(subject(before), subject(after))
}

// hostKey returns the key of an address of the node itself.
func hostKey(c *config.Config, address links.HostAddress) detector.Key {
	key := detector.Key{Network: config.DefaultNetwork, IP: address.IP}
	rule, ok := c.HostNetwork(address.Device, address.IP)
	if !ok && address.Master != "" {
		rule, ok = c.HostNetwork(address.Master, address.IP) // for example a VRF
	}
	if ok {
		key.Network = rule.Name
	}
	return key
}

// network names the network of an address on an interface: the one in the configuration, else the base
// network. VLAN tags are added, the outer one first: "default.100", "default.200.100". The bridge
// port's VLAN counts as a tag, except in a network of the configuration.
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
