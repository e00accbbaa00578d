package observe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// networks names the network of each address: it must be unique there. It must not know who has it.
type networks struct {
	config  *config.Config
	own     *Own
	subnets map[segment][]netip.Prefix
}

// base names the network of untagged packets on an interface. It depends on what the pod could not choose, see
// [Origin]: it stays the same if a pod renames or moves its eth0, or its netns cannot be seen any more.
//
// Only a pod's primary interface belongs to the cluster's network. The bridge of a local container
// engine is a network of its own, because every node has the same 172.17.0.0/16. So is each name of a
// secondary interface on each bridge or VRF: two attachments of one pod network may use one subnet
// lawfully. All switches and logical networks of Open vSwitch look like one bridge, and their subnets
// may be the same, so there each secondary interface is a network of its own.
//
// A device that sends by one of the node is in the network of that.
func (n *networks) base(i *Interface) string {
	vlan := "." + strconv.Itoa(int(i.ParentVLAN))
	switch peer := i.Origin.Peer; {
	case i.ParentVLAN != 0 && n.own.carriesGossip(strings.TrimSuffix(i.Master, vlan)):
		return config.SubnetNetwork(n.own.gossip.Subnet) + vlan
	case i.Kind != "":
		return n.own.segment(i.Master)
	case i.Origin.Role == PrimaryByResult:
		return config.DefaultNetwork
	case links.LocalBridge(i.Master):
		return i.Master
	case i.Primary():
		return config.DefaultNetwork
	case i.Master == links.OpenVSwitch:
		return peer + "@" + i.FirstName
	case i.Master != "":
		return peer + "@" + i.Master
	case peer == books.DefaultInterface:
		return peer + "@" + i.FirstName // a secondary one by its pod's result
	default:
		return peer
	}
}

// place returns where an address of a pod is, by its network: on a segment that pods of other nodes may be on.
func (n *networks) place(network string) detector.Place {
	if n.config.Infers(network) {
		return detector.PlaceSegment
	}
	return 0
}

// inNodesSubnet reports whether an address of a device inside of a pod is in the subnet of the nodes, on the segment that carries
// gossip. Then it must be unique among their addresses, too. Other subnets of this node do not count, because other nodes may not
// have them: the same address would be in another network there.
func (n *networks) inNodesSubnet(i *Interface, ip netip.Addr) bool {
	return i.Kind != "" && n.own.carriesGossip(i.Master) && n.own.gossip.Subnet.Contains(ip)
}

// subject is what the rules of the configuration match: only what the pod cannot choose. It names its devices that have no end on
// the node, and can make more of them.
func subject(i *links.Interface, peer string) config.Subject {
	if i.Kind != "" {
		return config.Subject{Interface: i.Master, Bridge: i.Master}
	}
	return config.Subject{Interface: i.Name, Peer: peer, Bridge: i.Master}
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

// of names the network of an address on an interface: the one in the configuration, else the base
// network. VLAN tags are added, the outer one first: "default.100", "default.200.100". The bridge
// port's VLAN counts as a tag, except in a network of the configuration.
//
// On a bridge that has primary ports, too, an address of a secondary port is in their network if it is in one of their
// subnets: both reach each other. So it is with the segment of the nodes and their subnet.
func (n *networks) of(i *Interface, vlan bpf.VLAN, ip netip.Addr) string {
	if vlan.Outer == i.PortVLAN { // the same segment as without a tag
		vlan = bpf.VLAN{Outer: vlan.Inner}
	}
	name := i.base
	if rule, ok := n.config.Network(subject(i.Interface, i.Origin.Peer), ip); ok {
		name = rule.Name
	} else if vlan == (bpf.VLAN{}) && (n.inPrimarySubnet(i, ip) || n.inNodesSubnet(i, ip)) {
		name = config.DefaultNetwork
	} else if name != config.DefaultNetwork {
		vlan.Outer = cmp.Or(vlan.Outer, i.PortVLAN)
		if i.PortVLAN != 0 && vlan.Outer == links.DefaultVLAN {
			vlan.Outer = 0
		}
	}
	for _, tag := range []uint16{vlan.Outer, vlan.Inner} {
		if tag != 0 {
			name += "." + strconv.Itoa(int(tag))
		}
	}
	return name
}

// segment is one VLAN of a bridge, 0 for the default one.
type segment struct {
	bridge string
	vlan   uint16
}

func segmentOf(i *Interface) segment {
	if i.PortVLAN == links.DefaultVLAN {
		return segment{bridge: i.Master}
	}
	return segment{i.Master, i.PortVLAN}
}

// secondaryPort reports whether an interface is a secondary one on a bridge that it may share with primary ones.
func (i *Interface) secondaryPort() bool {
	return i.Kind == "" && !i.Primary() && i.Master != "" && i.Master != links.OpenVSwitch
}

// inPrimarySubnet reports whether an address of a secondary port is in a subnet of the primary ports of its bridge.
func (n *networks) inPrimarySubnet(i *Interface, ip netip.Addr) bool {
	return i.secondaryPort() && slices.ContainsFunc(n.subnets[segmentOf(i)], func(p netip.Prefix) bool { return p.Contains(ip) })
}

// findSubnets finds the subnets of primary ports again, and has the bindings of secondary ports moved if they have
// changed. They are those that CNI gave, and those of the bridge's own addresses: never what is set inside a pod.
func (n *networks) findSubnets(all interfaces) {
	before := n.subnets
	n.subnets = make(map[segment][]netip.Prefix)
	shared := make(map[segment]bool)
	for _, i := range all {
		if i.secondaryPort() {
			shared[segmentOf(i)] = true
		}
	}
	if len(shared) == 0 && len(before) == 0 {
		return
	}
	primary := make(map[segment]bool)
	for _, i := range all {
		if s := segmentOf(i); shared[s] && i.Primary() {
			primary[s] = true
			if i.Pod.Result != nil {
				for _, a := range i.Pod.Result.Addresses {
					n.addSubnet(s, a.Masked())
				}
			}
		}
	}
	for _, a := range n.own.listed {
		if s := (segment{bridge: a.Device}); primary[s] {
			n.addSubnet(s, a.Subnet)
		}
	}
	for s := range n.subnets {
		slices.SortFunc(n.subnets[s], netip.Prefix.Compare)
	}
	if maps.EqualFunc(before, n.subnets, slices.Equal) {
		return
	}
	for _, i := range all {
		i.moves = i.moves || i.secondaryPort()
	}
}

// addSubnet adds a subnet of more than one address.
func (n *networks) addSubnet(s segment, p netip.Prefix) {
	if p.IsValid() && !p.IsSingleIP() && !slices.Contains(n.subnets[s], p) {
		n.subnets[s] = append(n.subnets[s], p)
	}
}
