package links

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// ListHostAddresses returns the node's own addresses, sorted. The list has no limit, as the kernel's has none: agent/observe limits
// what is compared.
func ListHostAddresses() ([]HostAddress, error) {
	return listHostAddresses(sync.OnceValues(listDefaultRoutes), func(int) bool { return false })
}

// listHostAddresses calls routes only if they matter: to list 50,000 takes 57 ms.
func listHostAddresses(routes func() (defaultRoutes, error), skip func(index int) bool) ([]HostAddress, error) {
	links, err := listLinks()
	if err != nil {
		return nil, err
	}
	addrs, err := listAddresses()
	if err != nil {
		return nil, err
	}
	return hostAddresses(links, addrs, routes, skip)
}

// hostAddresses selects the node's own addresses: those of uplinks, CNI bridges and tunnel devices. It
// omits service devices, bridges of local engines and those that skip selects. On loopback and dummy
// devices only the sources of default routes count: a node that learns its routes by BGP has its address
// there, next to those of services. An address on many devices is listed for each (ptp puts its gateway
// on every host veth): their networks may differ.
func hostAddresses(
	links []netlink.Link, addrs []netlink.Addr, routes func() (defaultRoutes, error), skip func(index int) bool,
) ([]HostAddress, error) {
	devices := make(map[int]netlink.Link, len(links))
	for _, link := range links {
		devices[link.Attrs().Index] = link
	}
	var host []HostAddress
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		const invalid = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC | unix.IFA_F_DADFAILED
		link := devices[a.LinkIndex]
		if !ok || !ip.IsGlobalUnicast() || a.Flags&invalid != 0 || link == nil {
			continue
		}
		attrs := link.Attrs()
		if LocalBridge(attrs.Name) || netns.ServiceDevice(attrs.Name) || skip(attrs.Index) {
			continue
		}
		if attrs.Name == "lo" || link.Type() == "dummy" {
			routes, err := routes()
			if err != nil {
				return nil, err
			}
			if !routes.sources[ip] {
				continue
			}
		}
		bits, _ := a.Mask.Size()
		address := HostAddress{IP: ip, Subnet: netip.PrefixFrom(ip, bits).Masked(), Device: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr}
		if master := devices[attrs.MasterIndex]; master != nil {
			address.Master = master.Attrs().Name
		}
		if parent := devices[attrs.ParentIndex]; parent != nil && link.Type() == "macvlan" && attrs.NetNsID < 0 {
			address.Parent = parent.Attrs().Name
		}
		host = append(host, address)
	}
	slices.SortFunc(host, func(a, b HostAddress) int {
		return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Index, b.Index))
	})
	return host, nil
}

// mainFirst puts the node's main addresses before all others: those that sources has, then those of the devices of default routes. Of
// these, addresses without a subnet come last: service addresses have none. For IPv6 the kernel takes any as its source, the one that is
// most like the destination.
func mainFirst(host []HostAddress, routes defaultRoutes, sources map[netip.Addr]bool) {
	rank := func(a HostAddress) int {
		switch {
		case sources[a.IP] || routes.sources[a.IP]:
			return 0
		case !routes.devices[a.Index]:
			return 3
		case a.Subnet.IsSingleIP():
			return 2
		}
		return 1
	}
	slices.SortStableFunc(host, func(a, b HostAddress) int { return cmp.Compare(rank(a), rank(b)) })
}

// listSources asks the kernel which addresses of the node it sends from to everybody else: to addresses that nobody has (RFC 5737,
// RFC 3849).
func listSources() map[netip.Addr]bool {
	found := make(map[netip.Addr]bool)
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		routes, err := netlink.RouteGet(net.ParseIP(to))
		if err != nil { // there is no route
			continue
		}
		for _, route := range routes {
			if source, ok := netip.AddrFromSlice(route.Src); ok {
				found[source.Unmap()] = true
			}
		}
	}
	return found
}

func listLinks() ([]netlink.Link, error) { return netns.List("links", netlink.LinkList) }

func listAddresses() ([]netlink.Addr, error) {
	return netns.List("addresses", func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
}
