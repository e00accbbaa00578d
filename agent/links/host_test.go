package links_test

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/internal/needs"
)

// Where BGP announces routes up to the node, its own address is on lo, and the source of
// its default route.
func TestHostAddressOnLoopback(t *testing.T) {
	needs.Root(t)
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	for _, text := range []string{"192.0.2.61/32", "192.0.2.62/32"} {
		address, err := netlink.ParseAddr(text)
		must(t, err)
		must(t, netlink.AddrAdd(lo, address))
		t.Cleanup(func() { _ = netlink.AddrDel(lo, address) })
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "swp1"
	port := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(port))
	t.Cleanup(func() { _ = netlink.LinkDel(port) })
	must(t, netlink.LinkSetUp(port))
	must(t, netlink.RouteAdd(&netlink.Route{
		LinkIndex: port.Index, Gw: net.IPv4(169, 254, 0, 1), Flags: int(netlink.FLAG_ONLINK), Src: net.IPv4(192, 0, 2, 61), Priority: 8,
	}))
	host, err := links.ListHostAddresses(func(int) bool { return false })
	must(t, err)
	var got []string
	for _, address := range host {
		if address.Device == "lo" {
			got = append(got, address.IP.String())
		}
	}
	if want := []string{"192.0.2.61"}; !slices.Equal(got, want) {
		t.Errorf("host addresses on lo %v, want %v", got, want)
	}
}
