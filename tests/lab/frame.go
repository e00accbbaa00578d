package lab

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/ndp"
)

// EtherTypes of the frames that the lab builds and reads.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd
)

// ARP operations (RFC 826).
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

const icmp6 = 58

// Broadcast is the Ethernet broadcast address.
var Broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Ethernet builds a frame; a vlan of 0 sends it untagged.
func Ethernet(dst, src net.HardwareAddr, vlan uint16, etherType uint16, payload []byte) []byte {
	frame := slices.Concat(dst, src)
	if vlan != 0 {
		frame = binary.BigEndian.AppendUint16(frame, etherVLAN)
		frame = binary.BigEndian.AppendUint16(frame, vlan)
	}
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	return append(frame, payload...)
}

// ARP builds the ARP packet for Ethernet and IPv4 (RFC 826), without a frame.
func ARP(op uint16, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	p := []byte{0, 1, 8, 0, 6, 4}
	p = binary.BigEndian.AppendUint16(p, op)
	p = append(p, senderMAC...)
	p = append(p, sender.AsSlice()...)
	p = append(p, targetMAC...)
	return append(p, target.AsSlice()...)
}

// zeroMAC is the target hardware address of a request.
var zeroMAC = make(net.HardwareAddr, 6)

// UDP builds an IP packet with a UDP datagram to the discard port, without a frame.
func UDP(src, dst netip.AddrPort, payload []byte) []byte {
	udp := binary.BigEndian.AppendUint16(nil, src.Port())
	udp = binary.BigEndian.AppendUint16(udp, dst.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	udp = append(udp, 0, 0)
	udp = append(udp, payload...)
	pseudo := slices.Concat(src.Addr().AsSlice(), dst.Addr().AsSlice(), []byte{0, 17}, udp[4:6])
	binary.BigEndian.PutUint16(udp[6:], checksum(append(pseudo, udp...)))
	return ipPacket(17, 64, src.Addr(), dst.Addr(), udp)
}

// ipPacket puts an IPv4 or IPv6 header in front of a payload.
func ipPacket(protocol, ttl byte, src, dst netip.Addr, payload []byte) []byte {
	if src.Is4() {
		h := []byte{0x45, 0}
		h = binary.BigEndian.AppendUint16(h, uint16(20+len(payload)))
		h = append(h, 0, 0, 0, 0, ttl, protocol, 0, 0)
		h = append(h, src.AsSlice()...)
		h = append(h, dst.AsSlice()...)
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		return append(h, payload...)
	}
	h := []byte{0x60, 0, 0, 0}
	h = binary.BigEndian.AppendUint16(h, uint16(len(payload)))
	h = append(h, protocol, ttl)
	h = append(h, src.AsSlice()...)
	h = append(h, dst.AsSlice()...)
	return append(h, payload...)
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for pair := range slices.Chunk(b, 2) {
		sum += uint32(pair[0]) << 8
		if len(pair) == 2 {
			sum += uint32(pair[1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// NDP builds an IPv6 packet with a neighbour discovery message (RFC 4861), without a frame.
func NDP(src, dst netip.Addr, m ndp.Message) ([]byte, error) {
	b, err := ndp.MarshalMessageChecksum(m, src, dst)
	if err != nil {
		return nil, err
	}
	return ipPacket(icmp6, 255, src, dst, b), nil
}

// Announcement is a gratuitous ARP request (RFC 5227, 2.3) or an unsolicited neighbour advertisement
// (RFC 4861, 7.2.6). vlan 0 is no tag.
func Announcement(a netip.Addr, mac net.HardwareAddr, vlan uint16) ([]byte, error) {
	if a.Is4() {
		return Solicitation(a, a, mac, vlan)
	}
	packet, err := NDP(a, allNodes, advertisement(a, mac, false))
	return Ethernet(multicastMAC(allNodes), mac, vlan, etherIPv6, packet), err
}

// Solicitation is a broadcast ARP request (RFC 826) or a multicast neighbour solicitation (RFC 4861,
// 4.3). Without a source (the zero Addr) it is an ARP probe (RFC 5227, 2.1.1) or the solicitation of
// duplicate address detection (RFC 4862, 5.4.2). vlan 0 is no tag.
func Solicitation(source, a netip.Addr, mac net.HardwareAddr, vlan uint16) ([]byte, error) {
	if a.Is4() {
		if !source.IsValid() {
			source = netip.IPv4Unspecified()
		}
		return Ethernet(Broadcast, mac, vlan, etherARP, ARP(ARPRequest, mac, source, zeroMAC, a)), nil
	}
	group, err := ndp.SolicitedNodeMulticast(a)
	if err != nil {
		return nil, err
	}
	message := &ndp.NeighborSolicitation{TargetAddress: a}
	if source.IsValid() {
		message.Options = []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac}}
	} else {
		source = netip.IPv6Unspecified()
	}
	packet, err := NDP(source, group, message)
	return Ethernet(multicastMAC(group), mac, vlan, etherIPv6, packet), err
}

func advertisement(a netip.Addr, mac net.HardwareAddr, solicited bool) *ndp.NeighborAdvertisement {
	return &ndp.NeighborAdvertisement{
		Solicited:     solicited,
		Override:      true,
		TargetAddress: a,
		Options:       []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: mac}},
	}
}

var allNodes = netip.MustParseAddr("ff02::1")

// multicastMAC is the Ethernet address of an IPv6 multicast group (RFC 2464, 7).
func multicastMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}
