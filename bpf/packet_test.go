package bpf

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Frames are built from bytes here, not by a library: half of them must be wrong.

type mac = [6]byte

var (
	podMAC    = mac{0x02, 0, 0, 0, 0, 0x01}
	otherMAC  = mac{0x02, 0, 0, 0, 0, 0x02}
	broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

const (
	typeIPv4   = 0x0800
	typeARP    = 0x0806
	typeIPv6   = 0x86dd
	typeVLAN   = 0x8100
	typeQinQ   = 0x88a8
	hopByHop   = 0
	routing    = 43
	fragment   = 44
	icmpv6     = 58
	destOption = 60
	udp        = 17

	solicitation  = 135
	advertisement = 136
	solicited     = advertisement | 0x40<<8 // an advertisement with the solicited flag
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func be16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// frame is an Ethernet frame, with the tags (type, TCI) in front of the payload's type.
func frame(source mac, etherType int, payload []byte, tags ...[2]int) []byte {
	b := join(broadcast[:], source[:])
	for _, tag := range tags {
		b = join(b, be16(tag[0]), be16(tag[1]))
	}
	return join(b, be16(etherType), payload)
}

// ipv4 is a header with options of the given number of bytes, and a UDP header.
func ipv4(source string, options int) []byte {
	total := 20 + options + 8
	ip, destination := addr(source).As4(), addr("10.9.9.9").As4()
	return join(
		[]byte{0x40 | byte(5+options/4), 0}, be16(total),
		[]byte{0, 1, 0, 0, 64, udp, 0, 0}, ip[:], destination[:],
		make([]byte, options), be16(1), be16(2), be16(8), be16(0),
	)
}

func ipv6(source string, next, hopLimit int, payload ...[]byte) []byte {
	return ipv6To("2001:db8::ffff", source, next, hopLimit, payload...)
}

func ipv6To(destination, source string, next, hopLimit int, payload ...[]byte) []byte {
	body := join(payload...)
	from, to := addr(source).As16(), addr(destination).As16()
	return join([]byte{0x60, 0, 0, 0}, be16(len(body)), []byte{byte(next), byte(hopLimit)}, from[:], to[:], body)
}

// extension is a hop-by-hop, routing or destination header of the given size in bytes.
func extension(next, size int) []byte {
	b := make([]byte, size)
	b[0], b[1] = byte(next), byte(size/8-1)
	return b
}

// option is an NDP option of the given size in bytes.
func option(kind, size int) []byte {
	b := make([]byte, size)
	b[0], b[1] = byte(kind), byte(size/8)
	return b
}

func udpHeader() []byte { return join(be16(1), be16(2), be16(8), be16(0)) }

// neighbour is a neighbour message. The second byte of kind has the flags.
func neighbour(kind, code int, target string, options ...[]byte) []byte {
	ip := addr(target).As16()
	return join([]byte{byte(kind), byte(code), 0, 0, byte(kind >> 8), 0, 0, 0}, ip[:], join(options...))
}

// linkOption is an option of the given type, eight bytes long, with a link-layer address.
func linkOption(kind int) []byte { return join([]byte{byte(kind), 1}, otherMAC[:]) }

func arp(operation int, sender mac, senderIP string, targetIP string) []byte {
	from, to := addr(senderIP).As4(), addr(targetIP).As4()
	return join(be16(1), be16(typeIPv4), []byte{6, 4}, be16(operation), sender[:], from[:], make([]byte, 6), to[:])
}

func ipv4Frame(source string) []byte { return frame(podMAC, typeIPv4, ipv4(source, 0)) }

func ipv6Frame(source string) []byte {
	return frame(podMAC, typeIPv6, ipv6(source, udp, 64, udpHeader()))
}
