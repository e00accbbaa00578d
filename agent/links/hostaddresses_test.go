package links

import (
	"errors"
	"net"
	"net/netip"
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
