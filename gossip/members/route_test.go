package members

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// elsewhere runs f in a network namespace of its own.
func elsewhere(t *testing.T, f func()) {
	t.Helper()
	testneeds.Root(t)
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and the namespace with it.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
}

func TestRouted(t *testing.T) {
	for _, test := range []struct {
		name         string
		addrs, gates []string
		bind         string
		want         string
	}{
		{"IPv4", []string{"10.9.0.2/24"}, []string{"10.9.0.1"}, "", "10.9.0.2:7"},
		{"a public one", []string{"198.18.0.2/24"}, []string{"198.18.0.1"}, "0.0.0.0", "198.18.0.2:7"},
		{"both families", []string{"10.9.0.2/24", "fd09::2/64"}, []string{"10.9.0.1", "fd09::1"}, "::", "10.9.0.2:7"},
		{"IPv6 only", []string{"fd09::2/64"}, []string{"fd09::1"}, "", "[fd09::2]:7"},
		{"IPv6 for an IPv4 listener", []string{"fd09::2/64"}, []string{"fd09::1"}, "0.0.0.0", ""},
		{"no default route", []string{"10.9.0.2/24"}, nil, "", ""},
		{"nothing", nil, nil, "", ""},
	} {
		elsewhere(t, func() {
			link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "up1"}
			if err := netlink.LinkAdd(link); err != nil {
				t.Error(err)
				return
			}
			must := func(err error) {
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
			}
			for _, text := range test.addrs {
				addr, err := netlink.ParseAddr(text)
				must(err)
				addr.Flags = unix.IFA_F_NODAD
				must(netlink.AddrAdd(link, addr))
			}
			must(netlink.LinkSetUp(link))
			must(netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: link.PeerName}}))
			for _, gate := range test.gates {
				must(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gate)}))
			}
			at, err := advertised("", test.bind, 7)
			if err == nil && at.String() != test.want || err != nil && (test.want != "" || !strings.Contains(err.Error(), "give --advertise")) {
				t.Errorf("%s: %v, %v", test.name, at, err)
			}
		})
	}
}
