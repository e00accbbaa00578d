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

func TestAdvertised(t *testing.T) {
	for _, test := range []struct{ advertise, bind, want string }{
		{"", "127.0.0.5", "127.0.0.5:7"},
		{"", "fd00::1", "[fd00::1]:7"},
		{"10.0.0.1", "127.0.0.5", "10.0.0.1:7"},
		{"10.0.0.1:80", "0.0.0.0", "10.0.0.1:80"},
		{"[fd00::1]:80", "", "[fd00::1]:80"},
		{"localhost:9", "", "127.0.0.1:9"},
		{"0.0.0.0", "", ""},
		{"a:b", "", ""},
		{"", "fe80::1%lo", ""},
	} {
		at, err := advertised(test.advertise, test.bind, 7)
		got := strings.Replace(at.String(), "[::1]:9", "127.0.0.1:9", 1)
		if err != nil && test.want != "" || err == nil && got != test.want {
			t.Errorf("%q, %q: %v, %v", test.advertise, test.bind, at, err)
		}
		if err != nil && test.advertise != "" && !strings.Contains(err.Error(), "--advertise") {
			t.Errorf("%q, %q: %v", test.advertise, test.bind, err)
		}
	}
}

// inNetns runs f in a network namespace of its own.
func inNetns(t *testing.T, f func()) {
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
		{"IPv6 only, with 464XLAT", []string{"192.0.0.1/29", "fd09::2/64"}, []string{"192.0.0.2", "fd09::1"}, "", "[fd09::2]:7"},
		{"IPv6 for an IPv4 listener", []string{"fd09::2/64"}, []string{"fd09::1"}, "0.0.0.0", ""},
		{"no default route", []string{"10.9.0.2/24"}, nil, "", ""},
		{"nothing", nil, nil, "", ""},
	} {
		inNetns(t, func() {
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
