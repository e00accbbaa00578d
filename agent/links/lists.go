package links

import (
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

func listLinks() ([]netlink.Link, error) { return netns.List("links", netlink.LinkList) }

func listAddresses() ([]netlink.Addr, error) {
	return netns.List("addresses", func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
}

// defaultRoutes are the devices and the preferred sources of the node's default routes. The
// uplink of a node that is a container itself is a veth, and no pod is behind that one.
type defaultRoutes struct {
	devices map[int]bool
	sources map[netip.Addr]bool
}

func listDefaultRoutes() (defaultRoutes, error) {
	found := defaultRoutes{make(map[int]bool), make(map[netip.Addr]bool)}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netns.List("default routes", func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return defaultRoutes{}, err
		}
		for _, route := range routes {
			found.devices[route.LinkIndex] = true
			for _, hop := range route.MultiPath {
				found.devices[hop.LinkIndex] = true
			}
			if source, ok := netip.AddrFromSlice(route.Src); ok {
				found.sources[source.Unmap()] = true
			}
		}
	}
	return found, nil
}

// leadsElsewhere says whether a link is a veth whose other end is in another netns, and that
// no default route uses: it leads into a pod, or is an uplink without a default route.
func (d defaultRoutes) leadsElsewhere(link netlink.Link) bool {
	return link.Type() == "veth" && link.Attrs().NetNsID >= 0 && !d.devices[link.Attrs().Index]
}
