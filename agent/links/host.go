package links

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// maxHostAddresses bounds the list of the node's addresses. It is long where every pod's
// host end has the gateway's address.
const maxHostAddresses = 4096

// serviceDevices carry addresses that every node has: kube-proxy's IPVS services
// and the node-local DNS cache.
var serviceDevices = []string{"kube-ipvs0", "nodelocaldns"}

// hostAddresses picks the node's own addresses: those of uplinks, CNI bridges and
// tunnel devices. Left out are loopback, dummy and service devices, bridges of
// local engines and, by skip, the host ends of secondary pod interfaces. An
// address on many devices is there for each (ptp puts its gateway on every host veth):
// they may belong to different networks.
func hostAddresses(links []netlink.Link, addrs []netlink.Addr, skip func(index int) bool) []HostAddress {
	devices := make(map[int]netlink.Link, len(links))
	for _, link := range links {
		devices[link.Attrs().Index] = link
	}
	var host []HostAddress
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		ip = ip.Unmap()
		// One that is being probed, or lost its own detection, is not in use.
		const unsettled = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC | unix.IFA_F_DADFAILED
		if !ip.IsGlobalUnicast() || a.Flags&unsettled != 0 {
			continue
		}
		link, ok := devices[a.LinkIndex]
		if !ok {
			continue
		}
		attrs := link.Attrs()
		if attrs.Name == "lo" || link.Type() == "dummy" || LocalBridge(attrs.Name) ||
			slices.Contains(serviceDevices, attrs.Name) || skip(attrs.Index) {
			continue
		}
		address := HostAddress{IP: ip, Device: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr}
		if master := devices[attrs.MasterIndex]; master != nil {
			address.Master = master.Attrs().Name
		}
		host = append(host, address)
	}
	slices.SortFunc(host, func(a, b HostAddress) int {
		return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Index, b.Index))
	})
	return host[:min(len(host), maxHostAddresses)]
}

// ListHostAddresses asks the kernel for the node's own addresses. skip names
// devices to leave out by index.
func ListHostAddresses(skip func(index int) bool) ([]HostAddress, error) {
	links, err := netns.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	addrs, err := netns.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	return hostAddresses(links, addrs, skip), nil
}

// uplinks returns the devices that the node's default routes leave by. A node that is
// a container itself has a veth for an uplink, and no pod is behind that one.
func uplinks() (map[int]bool, error) {
	found := make(map[int]bool)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netns.List(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return nil, fmt.Errorf("listing default routes: %w", err)
		}
		for _, route := range routes {
			found[route.LinkIndex] = true
			for _, hop := range route.MultiPath {
				found[hop.LinkIndex] = true
			}
		}
	}
	return found, nil
}
