package links_test

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/internal/testneeds"
)

// If the node learns its routes by BGP, its own address is on lo and is the source of its default route.
func TestHostAddressOnLoopback(t *testing.T) {
	testneeds.Root(t)
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
	host, err := links.ListHostAddresses()
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

func TestHostAddresses(t *testing.T) {
	testneeds.Root(t)
	for name, addresses := range map[string][]string{
		"cni0": {"10.7.0.1/24", "fd00:7::1/64", "169.254.9.9/16", "fd00:7::dad/64"}, "docker0": {"172.17.0.1/16"},
		"br-0123456789ab": {"172.18.0.1/16"}, "kube-ipvs0": {"10.96.0.1/32"}, "uplink": {"10.7.0.1/32", "192.0.2.7/24"},
	} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		device := &netlink.Bridge{LinkAttrs: attrs}
		must(t, netlink.LinkAdd(device))
		t.Cleanup(func() { netlink.LinkDel(device) })
		for _, address := range addresses {
			parsed, err := netlink.ParseAddr(address)
			must(t, err)
			if parsed.IP.To4() == nil && address != "fd00:7::dad/64" { // that one stays tentative
				parsed.Flags = unix.IFA_F_NODAD
			}
			must(t, netlink.AddrAdd(device, parsed))
		}
	}
	host, err := links.ListHostAddresses()
	must(t, err)
	var got []string
	for _, address := range host {
		got = append(got, address.IP.String())
	}
	// An address on two devices is listed twice: they may be in different networks.
	if want := []string{"10.7.0.1", "10.7.0.1", "192.0.2.7", "fd00:7::1"}; !slices.Equal(got, want) {
		t.Errorf("host addresses %v, want %v", got, want)
	}
}

// The node's own addresses come after all interfaces of the first list, attached or pending, also after one
// whose netns cannot be found.
func TestHostAddressesComeLast(t *testing.T) {
	const pods = 20
	for n := range pods {
		addVeth(t, ownnetns.NewPod(t), fmt.Sprint("pod", n), "10.1.1.1/24")
	}
	addHidden(t, hiddenNetns(t), "hidden", 0, 0)
	_, wait := watch(t, links.Options{})
	added := make(map[bool]int)
	wait("the node's addresses", func(e links.Event) bool {
		if e.Kind == links.Added {
			added[e.Interface.Seen]++
		}
		return e.Kind == links.HostAddresses
	})
	if added[true] != pods || added[false] != 1 {
		t.Errorf("%d interfaces and %d unseen ones were added before the node's addresses, want %d and 1", added[true], added[false], pods)
	}
}
