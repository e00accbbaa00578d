package agent

import (
	"strconv"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
)

// DefaultNetwork is the cluster-wide network of primary pod interfaces and nodes.
const DefaultNetwork = "default"

// baseNetwork names the network of untagged packets on an interface. It depends on
// what the interface was first: a pod that renames its eth0 stays where it is.
//
// Only a pod's primary interface belongs to the cluster's network. A local
// container engine's bridge is a network of its own, because every node has the
// same 172.17.0.0/16. So is each secondary interface name, told apart by its
// bridge or VRF: two attachments of one pod network may use one subnet lawfully.
func baseNetwork(i *links.Interface) string {
	switch {
	case links.LocalBridge(i.Master):
		return i.Master
	case !i.Seen, i.View.Peer == links.PrimaryPeer:
		// One whose netns is not seen is most likely a primary one, too.
		return DefaultNetwork
	}
	if i.Master != "" {
		return i.View.Peer + "@" + i.Master
	}
	return i.View.Peer
}

// network adds the VLAN tags to the name of the base network: "default.100",
// "default.200.100" with the outer tag first.
func network(i *links.Interface, vlan bpf.VLAN) string {
	name := baseNetwork(i)
	for _, tag := range []uint16{vlan.Outer, vlan.Inner} {
		if tag != 0 {
			name += "." + strconv.Itoa(int(tag))
		}
	}
	return name
}
