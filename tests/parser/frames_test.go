package parser

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// generator makes frames that are nearly right: what is random through and through says nothing.
type generator struct {
	*rand.Rand
	captured [][]byte
}

// frame is one that is built or captured, and often damaged.
func (g *generator) frame() []byte {
	var b []byte
	if g.IntN(4) == 0 {
		b = g.tag(slices.Clone(g.captured[g.IntN(len(g.captured))]))
	} else {
		b = g.build()
	}
	for g.rarely(3) {
		b = g.damage(b)
	}
	return b[:min(len(b), maxFrame)]
}

// maxFrame: XDP gets longer frames of BPF_PROG_TEST_RUN in parts, and those of a device never.
const maxFrame = 3000

// one of the values.
func one[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

// mostly the first value.
func mostly[T any](g *generator, usual T, others ...T) T {
	if g.rarely(10) {
		return one(g, others...)
	}
	return usual
}

// rarely is true once in n times.
func (g *generator) rarely(n int) bool { return g.IntN(n) == 0 }

func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func be16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }

func (g *generator) mac() []byte {
	return one(g, []byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 2}, ourMAC[:], []byte{255, 255, 255, 255, 255, 255})
}

// tag puts up to three VLAN tags into a frame.
func (g *generator) tag(b []byte) []byte {
	for n := one(g, 0, 0, 0, 1, 1, 2, 3); n > 0; n-- {
		b = slices.Insert(b, 12, slices.Concat(be16(one(g, 0x8100, 0x8100, 0x88a8, 0x9100)), be16(one(g, 0, 1, 7, 4095, 0xe000, 0x1064)))...)
	}
	return b
}

func (g *generator) build() []byte {
	etherType, payload := 0x86dd, []byte(nil)
	switch g.IntN(8) {
	case 0, 1:
		etherType, payload = 0x0806, g.arp()
	case 2:
		etherType, payload = 0x0800, g.ipv4()
	default:
		payload = g.ipv6()
	}
	if g.rarely(50) {
		etherType = one(g, 0x0800, 0x0806, 0x86dd, 46, 0x88cc)
	}
	return g.tag(slices.Concat(g.mac(), g.mac(), be16(etherType), payload))
}

func (g *generator) address4() []byte {
	if !g.rarely(4) {
		return []byte{10, 0, 0, byte(1 + g.IntN(3))}
	}
	ip := netip.MustParseAddr(one(g, "10.0.0.1", "10.0.0.2", "10.0.0.1", "0.0.0.0", "0.0.0.1", "127.0.0.1", "169.254.0.1", "169.253.0.1",
		"224.0.0.1", "223.255.255.255", "240.0.0.1", "255.255.255.255", "255.255.255.254"))
	return ip.AsSlice()
}

func (g *generator) arp() []byte {
	return slices.Concat(be16(mostly(g, one(g, 1, 6), 0, 7, 256)), be16(mostly(g, 0x0800, 0x86dd)),
		[]byte{mostly[byte](g, 6, 8, 0), mostly[byte](g, 4, 16)}, be16(mostly(g, one(g, 1, 2), 0, 3, 4, 257)),
		g.mac(), g.address4(), g.mac(), g.address4(), make([]byte, one(g, 0, 0, 18, 1)))
}

func (g *generator) ipv4() []byte {
	options := one(g, 0, 0, 0, 4, 40)
	total := mostly(g, 20+options+8, 0, 19, 65535)
	first := mostly(g, 0x45+options/4, 0x40, 0x44, 0x55, 0x65, 0x4f, 0x50)
	return slices.Concat([]byte{byte(first), 0}, be16(total), be16(1), be16(one(g, 0, 0x2000, 0x00b9, 0x4000)),
		[]byte{64, one[byte](g, 17, 6, 1)}, be16(0), g.address4(), g.address4(), g.bytes(options), g.bytes(8))
}

func (g *generator) address6() []byte {
	if g.rarely(2) {
		return netip.MustParseAddr(one(g, "2001:db8::1", "2001:db8::9")).AsSlice()
	}
	ip := netip.MustParseAddr(one(g, "2001:db8::1", "2001:db8::9", "fe80::1", "::", "::1", "::2", "ff02::1", "ff02::1:ff00:9", "fec0::1",
		"fe7f::1", "febf::1", "::ffff:10.0.0.1", "::fffe:10.0.0.1", "64:ff9b::1", "a00:1::", "1::ffff:10.0.0.1")).As16()
	return ip[:]
}

const (
	hopByHop    = 0
	routing     = 43
	fragment    = 44
	icmp6       = 58
	destination = 60
)

func (g *generator) ipv6() []byte {
	chain := 0
	if g.rarely(3) {
		chain = 1 + g.IntN(6)
	}
	if g.rarely(100) {
		chain = one(g, g.IntN(250), 244+g.IntN(8)) // to where the observer reads no more
	}
	last := one(g, icmp6, icmp6, icmp6, icmp6, icmp6, icmp6, 17, 6, 59)
	var types []int
	for range chain {
		kind := one(g, hopByHop, destination, destination, routing)
		if g.rarely(chain * 4) {
			kind = one(g, fragment, 51, 50, 135)
		}
		types = append(types, kind)
	}
	types = append(types, last)
	payload := []byte{}
	for i := range chain {
		size := 0
		if chain < 10 && g.rarely(8) {
			size = one(g, 1, 2, 3, 31, 255)
		}
		payload = slices.Concat(payload, []byte{byte(types[i+1]), byte(size)}, g.options(6+8*size))
	}
	if last == icmp6 {
		payload = append(payload, g.neighbour()...)
	} else {
		payload = append(payload, g.bytes(8)...)
	}
	size := len(payload) + mostly(g, 0, -len(payload), -8, -1, 1, 8, 60000)
	if g.rarely(8) {
		payload = append(payload, one(g, make([]byte, 8), []byte{1, 1, 2, 0, 0, 0, 0, 9}, g.bytes(3))...) // padding
	}
	source := one(g, g.address6(), g.address6(), make([]byte, 16))
	group := netip.MustParseAddr(mostly(g, "ff02::1:ff00:9", "ff05::1:ff00:9", "ff02::1:fe00:9", "ff02::2:ff00:9", "ff02:0:1::1:ff00:9")).AsSlice()
	return slices.Concat([]byte{mostly[byte](g, 0x60, 0x6f, 0x40, 0x70), 0, 0, 0}, be16(size),
		[]byte{byte(types[0]), mostly[byte](g, 255, 254, 64, 0, 1)}, source, one(g, group, g.address6()), payload)
}

// options fill an extension header, mostly as they should.
func (g *generator) options(n int) []byte {
	if n > 250 || g.rarely(3) {
		return g.bytes(n)
	}
	return slices.Concat([]byte{1, byte(n - 2)}, make([]byte, n-2)) // PadN
}

func (g *generator) neighbour() []byte {
	b := slices.Concat([]byte{mostly(g, one[byte](g, 135, 136), 133, 134, 137, 128), mostly[byte](g, 0, 1)},
		g.bytes(2), []byte{byte(g.Uint32())}, g.bytes(3), g.address6())
	for n := one(g, 0, 0, 1, 1, 1, 2, 3, 15, 16, 17, 40); n > 0; n-- {
		b = append(b, g.option()...)
	}
	return b
}

func (g *generator) option() []byte {
	size := mostly(g, 1, 0, 2, 31, 255)
	b := slices.Concat([]byte{one[byte](g, 1, 2, 14, 14, 14, 5), byte(size)}, g.bytes(6))
	if size > 1 {
		b = append(b, make([]byte, size*8-8)...)
	}
	return b
}

// damage changes a frame a little.
func (g *generator) damage(b []byte) []byte {
	if len(b) == 0 {
		return g.bytes(20)
	}
	at := g.IntN(len(b))
	if g.rarely(2) {
		at = g.IntN(min(len(b), 64)) // where the headers are
	}
	switch g.IntN(8) {
	case 0:
		b[at] ^= 1 << g.IntN(8)
	case 1:
		b[at] = byte(g.Uint32())
	case 2:
		b[at] = one[byte](g, 0, 1, 2, 6, 8, 43, 44, 58, 60, 64, 254, 255)
	case 3:
		return b[:at]
	case 4:
		return append(b, g.bytes(g.IntN(20))...)
	case 5:
		return slices.Delete(b, at, min(at+one(g, 1, 2, 4, 8), len(b)))
	case 6:
		return slices.Insert(b, at, g.bytes(one(g, 1, 2, 4, 8))...)
	default:
		if from := g.IntN(len(b)); from > at {
			copy(b[at:], b[from:min(from+16, len(b))])
		}
	}
	return b
}
