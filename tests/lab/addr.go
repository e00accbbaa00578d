package lab

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPs parses constant addresses. It panics on an invalid one.
func IPs(texts ...string) []netip.Addr {
	var addrs []netip.Addr
	for _, s := range texts {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs
}

// ExternalAddr is an address behind the switch, where packets end, of the sender's family.
func ExternalAddr(sender netip.Addr) netip.Addr {
	if sender.Is6() {
		return netip.MustParseAddr("2001:db8::9")
	}
	return netip.MustParseAddr("192.0.2.9")
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// nlAddr is an address for netlink. Without dad an IPv6 address is usable at once.
func nlAddr(p netip.Prefix, dad bool) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() && !dad {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}
