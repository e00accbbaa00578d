package observe

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/links"
)

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
