package links

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

// A node may have as many routes as the Internet. They are listed only if an address on lo or a dummy
// device may be the node's own.
func TestRoutesAreListedOnlyIfTheyMatter(t *testing.T) {
	devices := []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1, Name: "lo"}},
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 2, Name: "eth0"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "kube-ipvs0"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 4, Name: "dummy0"}},
	}
	for _, test := range []struct {
		name   string
		device int
		ip     string
		listed bool
		want   int
	}{
		{"on the uplink", 2, "192.0.2.1", false, 1},
		{"loopback", 1, "127.0.0.1", false, 0},
		{"a service's", 3, "192.0.2.1", false, 0},
		{"on lo", 1, "192.0.2.1", true, 1},
		{"on a dummy device", 4, "192.0.2.1", true, 1},
		{"not the source of a route", 4, "192.0.2.2", true, 0},
	} {
		addrs := []netlink.Addr{{LinkIndex: test.device, IPNet: netlink.NewIPNet(net.ParseIP(test.ip))}}
		listed := false
		routes := func() (defaultRoutes, error) {
			listed = true
			return defaultRoutes{sources: map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true}}, nil
		}
		none := func(int) bool { return false }
		got, err := hostAddresses(devices, addrs, routes, none)
		if err != nil || listed != test.listed || len(got) != test.want {
			t.Errorf("%s: %+v, %v, routes listed %t; want %d and %t", test.name, got, err, listed, test.want, test.listed)
		}
		failed := errors.New("no routes")
		broken := func() (defaultRoutes, error) { return defaultRoutes{}, failed }
		if _, err := hostAddresses(devices, addrs, broken, none); errors.Is(err, failed) != test.listed {
			t.Errorf("%s, without routes: error %v", test.name, err)
		}
	}
}

// The address from which the node sends comes first, then those of the devices of default routes. Nothing is cut off.
func TestMainAddressesComeFirst(t *testing.T) {
	const others = 5000
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 2, Name: "eth0"}},
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "eth1"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 4, Name: "dummy0"}},
	}
	var addrs []netlink.Addr
	add := func(device int, ip string) {
		addrs = append(addrs, netlink.Addr{LinkIndex: device, IPNet: netlink.NewIPNet(net.ParseIP(ip))})
	}
	addWithSubnet := func(device int, prefix string) {
		address, err := netlink.ParseAddr(prefix)
		if err != nil {
			t.Fatal(err)
		}
		address.LinkIndex = device
		addrs = append(addrs, *address)
	}
	for i := range others {
		add(3, netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)}).String())
	}
	for _, ip := range []string{"fd00::7", "192.0.2.8", "192.0.2.7", "fd00::8"} {
		add(2, ip)
	}
	addWithSubnet(2, "fd00:77::1/64")
	add(4, "192.0.2.9") // as where routes are learnt by BGP
	routes := defaultRoutes{devices: map[int]bool{2: true}, sources: map[netip.Addr]bool{netip.MustParseAddr("192.0.2.9"): true}}
	host, err := hostAddresses(links, addrs, func() (defaultRoutes, error) { return routes, nil }, func(int) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	mainFirst(host, routes, map[netip.Addr]bool{netip.MustParseAddr("192.0.2.8"): true, netip.MustParseAddr("fd00::8"): true})
	var first []string
	for _, a := range host[:min(7, len(host))] {
		first = append(first, a.IP.String())
	}
	if want := []string{"192.0.2.8", "192.0.2.9", "fd00::8", "fd00:77::1", "192.0.2.7", "fd00::7", "10.64.0.0"}; !slices.Equal(first, want) || len(host) != others+6 {
		t.Errorf("%d addresses, the first are %v, want %d and %v", len(host), first, others+6, want)
	}
}
