package peers

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/mdlayher/ndp"
)

// EtherTypes and lengths.
const (
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd

	etherHeader, arpLength, ipv6Header = 14, 28, 40
)

// neighbour is who a frame says has an address.
type neighbour struct {
	ip  netip.Addr
	mac net.HardwareAddr
	// to is the frame's destination.
	to net.HardwareAddr
}

// readNeighbour reads from an untagged frame what its sender says about itself: the sender of
// an ARP packet (RFC 826), the source of a neighbour solicitation, or the target of an
// advertisement (RFC 4861). Probes and link-local addresses say nothing.
func readNeighbour(frame []byte) (n neighbour, ok bool) {
	if len(frame) < etherHeader {
		return n, false
	}
	n.to, n.mac = net.HardwareAddr(frame[:6]), net.HardwareAddr(frame[6:12])
	p := frame[etherHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		// Ethernet and IPv4.
		if len(p) < arpLength || binary.BigEndian.Uint64(p)>>16 != 0x000108000604 {
			return n, false
		}
		n.mac, n.ip = net.HardwareAddr(p[8:14]), netip.AddrFrom4([4]byte(p[14:18]))
	case etherIPv6:
		const icmpv6, hopLimit = 58, 255
		if len(p) < ipv6Header || p[6] != icmpv6 || p[7] != hopLimit {
			return n, false
		}
		message, err := ndp.ParseMessage(p[ipv6Header:])
		if err != nil {
			return n, false
		}
		switch m := message.(type) {
		case *ndp.NeighborSolicitation:
			n.ip = netip.AddrFrom16([16]byte(p[8:24]))
			n.option(m.Options, ndp.Source)
		case *ndp.NeighborAdvertisement:
			n.ip = m.TargetAddress
			n.option(m.Options, ndp.Target)
		}
	}
	return n, n.ip.IsValid() && n.ip.IsGlobalUnicast()
}

// option takes the MAC from a link-layer address option, if there is one.
func (n *neighbour) option(options []ndp.Option, direction ndp.Direction) {
	for _, o := range options {
		if lla, ok := o.(*ndp.LinkLayerAddress); ok && lla.Direction == direction {
			n.mac = lla.Addr
		}
	}
}
