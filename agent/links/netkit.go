package links

import "github.com/vishvananda/netlink"

// unsupportedNetkit lists the netkit devices of the node that cannot be observed.
func unsupportedNetkit(links []netlink.Link) (all []Interface) {
	for _, link := range links {
		netkit, ok := link.(*netlink.Netkit)
		if attrs := link.Attrs(); ok && attrs.NetNsID >= 0 && !observableNetkit(netkit) {
			all = append(all, Interface{
				Name: attrs.Name, Index: attrs.Index, State: Unsupported, Reason: "the primary end of this netkit pair is not on the node",
			})
		}
	}
	return all
}

// observableNetkit reports whether a netkit device of the node can be observed: programs are attached to both ends by the primary one
// (drivers/net/netkit.c).
func observableNetkit(netkit *netlink.Netkit) bool { return netkit.IsPrimary() }
