package netns_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
)

// An IPv6 address whose duplicate address detection failed is lost.
func TestAddressThatIsLost(t *testing.T) {
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pod5"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	host, err := netlink.LinkByName("pod5")
	must(t, err)
	mask := net.CIDRMask(64, 128)
	address := func(ip string, flags int) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: mask}, Flags: flags}
	}
	must(t, netlink.LinkSetUp(host))
	must(t, netlink.AddrAdd(host, address("fd00:5::1", unix.IFA_F_NODAD)))
	file := pod.Open(t)
	// Packets that are sent before the host end is up are lost.
	answers := func() bool {
		host, err := netlink.LinkByName("pod5")
		must(t, err)
		return host.Attrs().OperState == netlink.OperUp
	}
	must(t, netns.Do(file, func() error {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetUp(eth0))
		return netlink.AddrAdd(eth0, address("fd00:5::2", unix.IFA_F_NODAD))
	}))
	for deadline := time.Now().Add(time.Minute); !answers(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the host end is not up")
		}
	}
	must(t, netns.Do(file, func() error {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		return netlink.AddrAdd(eth0, address("fd00:5::1", 0))
	}))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		view, err := netns.Scan(file, host.Attrs().ParentIndex)
		must(t, err)
		lost := make(map[string]bool)
		for _, a := range view.Addresses {
			lost[a.IP.String()] = a.Lost && !a.Valid
		}
		if lost["fd00:5::2"] {
			t.Fatal("duplicate address detection failed for an address without a duplicate")
		}
		if lost["fd00:5::1"] {
			if view.Holds(netip.MustParseAddr("fd00:5::1"), 0, 0) {
				t.Error("Holds is true for the lost address")
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no address is lost: %+v", view.Addresses)
		}
	}
}
