package links

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// maxHostAddresses bounds the list of the node's addresses. It is long where every pod's
// host end has the gateway's address.
const maxHostAddresses = 4096

// hostAddresses picks the node's own addresses: those of uplinks, CNI bridges and
// tunnel devices. Left out are loopback, dummy and service devices, bridges of
// local engines and, by skip, the host ends of secondary pod interfaces. On loopback and
// dummy devices only the sources of default routes count: a node whose routes are told by
// BGP has its address there, and services have theirs. An address on many devices is there
// for each (ptp puts its gateway on every host veth): they may belong to different networks.
// The ways out are asked for only if they matter.
func hostAddresses(links []netlink.Link, addrs []netlink.Addr, ways func() (exits, error), skip func(index int) bool) ([]HostAddress, error) {
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
		if LocalBridge(attrs.Name) || netns.ServiceDevice(attrs.Name) || skip(attrs.Index) {
			continue
		}
		if attrs.Name == "lo" || link.Type() == "dummy" {
			out, err := ways()
			if err != nil {
				return nil, err
			}
			if !out.sources[ip] {
				continue
			}
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
	return host[:min(len(host), maxHostAddresses)], nil
}

// ListHostAddresses asks the kernel for the node's own addresses. skip names
// devices to leave out by index.
func ListHostAddresses(skip func(index int) bool) ([]HostAddress, error) {
	// That lists all routes: 57 ms where there are 50,000.
	return listHostAddresses(sync.OnceValues(defaultRoutes), skip)
}

func listHostAddresses(ways func() (exits, error), skip func(index int) bool) ([]HostAddress, error) {
	links, err := netns.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}
	addrs, err := netns.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	return hostAddresses(links, addrs, ways, skip)
}

// lookAtHost reads the node's own addresses and tells the agent of a difference.
func (w *Watcher) lookAtHost(ctx context.Context) {
	ways := func() (exits, error) { return w.exits, nil } // of the last resync
	host, err := listHostAddresses(ways, func(index int) bool {
		t := w.tracked[index]
		_, ignored := w.ignored[index]
		return ignored || t != nil && t.firstPeer != "" && t.firstPeer != PrimaryPeer
	})
	if err != nil {
		w.log.Warn("listing the node's own addresses failed, trying again at the next resync", "error", err)
		return
	}
	w.emit(ctx, Event{Kind: HostAddresses, Host: host})
}
