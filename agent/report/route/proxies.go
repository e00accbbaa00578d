package route

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/internal/bounds"
)

// How the kernel comes to answer ARP or NS for an address that is not its own: by an entry for it, or as the device or all devices have
// proxy_arp.
const (
	ByEntry  = "proxy"
	ByDevice = "proxy_arp"
	ByAll    = "proxy_arp all"
)

// maxProxies bounds the proxy entries that are looked at.
const maxProxies = 4096

var tooManyProxies = bounds.New("too many proxy entries of neighbours")

// Proxies are where the kernel may answer for others' addresses: on devices that have a subnet. Host ends of pods have none, and are
// lawful proxies.
type Proxies struct {
	entries map[proxyEntry]bool
	devices []int                  // those with a subnet, by ifindex, so that the same one is named each time
	subnets map[int][]netip.Prefix // theirs
}

type proxyEntry struct {
	ip    netip.Addr
	index int
}

// ListProxies reads where the kernel may answer.
func ListProxies() (*Proxies, error) {
	entries, err := listEntries()
	if err != nil {
		return nil, err
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	p := &Proxies{entries: entries, subnets: make(map[int][]netip.Prefix)}
	for _, a := range addrs {
		if subnet := prefix(a.IPNet); subnet.Addr().IsGlobalUnicast() && !subnet.IsSingleIP() {
			p.subnets[a.LinkIndex] = append(p.subnets[a.LinkIndex], subnet.Masked())
		}
	}
	p.devices = slices.Sorted(maps.Keys(p.subnets))
	return p, nil
}

// For returns the device on which the kernel answers for an address, and by what, if packets to it leave by another device (arp_process,
// net/ipv4/arp.c, and ndisc_recv_ns, net/ipv6/ndisc.c); nothing if it does not. pods selects devices that lead into pods.
func (p *Proxies) For(ip netip.Addr, routes []Route, pods func(index int) bool) (device, by string) {
	for _, index := range p.devices {
		entry := p.entries[proxyEntry{ip, index}]
		near := ip.Is4() && slices.ContainsFunc(p.subnets[index], func(s netip.Prefix) bool { return s.Contains(ip) })
		if !entry && !near || pods(index) || !slices.ContainsFunc(routes, func(r Route) bool { return r.Kind == Out && r.Device.Index != index }) {
			continue
		}
		link, err := linkByIndex(index)
		if err != nil {
			continue
		}
		name := link.Attrs().Name
		switch {
		case ip.Is6() && isSet("ipv6", name, "forwarding") && (isSet("ipv6", name, "proxy_ndp") || isSet("ipv6", "all", "proxy_ndp")):
			return name, ByEntry
		case ip.Is6() || !isSet("ipv4", name, "forwarding"):
		case entry:
			return name, ByEntry
		case isSet("ipv4", name, "proxy_arp"):
			return name, ByDevice
		case isSet("ipv4", "all", "proxy_arp"):
			return name, ByAll
		}
	}
	return "", ""
}

// isSet reports whether a switch of a device is on.
func isSet(family, device, name string) bool {
	text, err := os.ReadFile("/proc/sys/net/" + family + "/conf/" + device + "/" + name)
	return err == nil && strings.TrimSpace(string(text)) != "0"
}

// listEntries lists the proxy entries. No event tells of a new one (neigh_add, net/core/neighbour.c).
func listEntries() (map[proxyEntry]bool, error) {
	all, err := netlink.NeighProxyList(0, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing proxy entries of neighbours: %w", err)
	}
	if n := len(all) - maxProxies; n > 0 {
		tooManyProxies.Exceeded(n)
		all = all[:maxProxies]
	}
	found := make(map[proxyEntry]bool)
	for _, n := range all {
		if ip, ok := netip.AddrFromSlice(n.IP); ok {
			found[proxyEntry{ip.Unmap(), n.LinkIndex}] = true
		}
	}
	return found, nil
}
