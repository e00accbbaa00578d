package othertools

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// What arpwatch 2.1a15 prints with -d.
const arpwatchReports = `
From: arpwatch (Arpwatch node)
To: root
Subject: new station (10.9.0.4) cni0

            hostname: <unknown>
          ip address: 10.9.0.4
           interface: cni0
    ethernet address: da:89:da:4e:33:52

From: arpwatch (Arpwatch node)
To: root
Subject: changed ethernet address (10.9.0.5) cni0

            hostname: <unknown>
          ip address: 10.9.0.5
    ethernet address: 4a:9d:5b:18:47:db
old ethernet address: da:89:da:4e:33:52

From: arpwatch (Arpwatch node)
To: root
Subject: flip flop (web.example.org) cni0

            hostname: web.example.org
          ip address: 10.9.0.6
    ethernet address: 4a:9d:5b:18:47:db
arpwatch: reused old ethernet address 10.9.0.7 4a:9d:5b:18:47:db (da:89:da:4e:33:52)
arpwatch: bogon 10.9.0.8 4a:9d:5b:18:47:db
arpwatch: ethernet mismatch 10.9.0.9 4a:9d:5b:18:47:db (da:89:da:4e:33:52)
          ip address: 10.9.0.10
`

func TestArpwatchReports(t *testing.T) {
	var r arpwatchReport
	var got []string
	for line := range strings.Lines(arpwatchReports) {
		if ip, kind, ok := r.read(line); ok {
			got = append(got, fmt.Sprint(kind, " ", ip))
		}
	}
	want := []string{"changed ethernet address 10.9.0.5", "flip flop 10.9.0.6", "reused old ethernet address 10.9.0.7"}
	if !slices.Equal(got, want) {
		t.Errorf("alarms: got %q, want %q", got, want)
	}
}

func TestParseTshark(t *testing.T) {
	for line, want := range map[string][]netip.Addr{
		"Duplicate IP address configured (10.9.0.5)":                                            lab.IPs("10.9.0.5"),
		"Duplicate IP address configured (10.9.0.5),Duplicate IP address configured (10.9.0.6)": lab.IPs("10.9.0.5", "10.9.0.6"),
		"Capturing on 'any'":                           nil,
		"Duplicate IP address configured (10.9.0.500)": nil,
		"": nil,
	} {
		if got := parseTshark(line); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

func TestReadNeighbour(t *testing.T) {
	own, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ip4, ip6 := netip.MustParseAddr("10.9.0.5"), netip.MustParseAddr("fd00::5")
	arp := func(op uint16, sender netip.Addr) []byte {
		return lab.Ethernet(lab.Broadcast, own, 0, unix.ETH_P_ARP, lab.ARP(op, own, sender, other, netip.MustParseAddr("10.9.0.1")))
	}
	nd := func(src netip.Addr, m ndp.Message) []byte {
		packet, err := lab.NDP(src, netip.MustParseAddr("ff02::1"), m)
		if err != nil {
			t.Fatal(err)
		}
		return lab.Ethernet(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, own, 0, unix.ETH_P_IPV6, packet)
	}
	option := func(d ndp.Direction) []ndp.Option {
		return []ndp.Option{&ndp.LinkLayerAddress{Direction: d, Addr: other}}
	}
	solicitation := &ndp.NeighborSolicitation{TargetAddress: netip.MustParseAddr("fd00::1"), Options: option(ndp.Source)}
	datagram := lab.UDP(netip.AddrPortFrom(ip6, 9), netip.MustParseAddrPort("[2001:db8::9]:9"), nil)
	for _, tt := range []struct {
		name  string
		frame []byte
		ip    netip.Addr
		mac   net.HardwareAddr
	}{
		{"request", arp(lab.ARPRequest, ip4), ip4, own},
		{"reply", arp(lab.ARPReply, ip4), ip4, own},
		{"probe", arp(lab.ARPRequest, netip.IPv4Unspecified()), netip.Addr{}, nil},
		{"link-local", arp(lab.ARPRequest, netip.MustParseAddr("169.254.1.1")), netip.Addr{}, nil},
		{"short", arp(lab.ARPRequest, ip4)[:41], netip.Addr{}, nil},
		{"solicitation", nd(ip6, solicitation), ip6, other},
		{"detection", nd(netip.IPv6Unspecified(), solicitation), netip.Addr{}, nil},
		{"advertisement", nd(netip.MustParseAddr("fe80::1"), &ndp.NeighborAdvertisement{TargetAddress: ip6, Options: option(ndp.Target)}), ip6, other},
		{"without option", nd(ip6, &ndp.NeighborAdvertisement{TargetAddress: ip6}), ip6, own},
		{"datagram", lab.Ethernet(other, own, 0, unix.ETH_P_IPV6, datagram), netip.Addr{}, nil},
		{"nothing", nil, netip.Addr{}, nil},
	} {
		got, ok := readNeighbour(lab.Packet{Frame: tt.frame})
		if ok != tt.ip.IsValid() || ok && (got.ip != tt.ip || got.mac.String() != tt.mac.String()) {
			t.Errorf("%s: got %v at %v, %t, want %v at %v", tt.name, got.ip, got.mac, ok, tt.ip, tt.mac)
		}
	}
}
