package bpf

import (
	"slices"
	"testing"
)

const (
	global, linkLocal = "2001:db8::1", "fe80::1"
	asked, askedGroup = "2001:db8::9", "ff02::1:ff00:9" // a target and its solicited-node group
	allNodes          = "ff02::1"
)

// ofSize is an IPv6 packet whose header gives its payload so many bytes more than it has.
func ofSize(more int, packet []byte) []byte {
	size := len(packet) - 40 + more
	return join(packet[:4], be16(size), packet[6:])
}

// chain is n destination headers; next follows them.
func chain(n, next int) []byte {
	return join(slices.Repeat(extension(destOption, 8), n-1), extension(next, 8))
}

func ndpCases() []parseCase {
	in6 := func(packet []byte) []byte { return frame(podMAC, typeIPv6, packet) }
	nsBody := func(options ...[]byte) []byte { return neighbour(solicitation, 0, asked, options...) }
	ns := func(options ...[]byte) []byte { return in6(ipv6(global, icmpv6, 255, nsBody(options...))) }
	dad := func(to string, options ...[]byte) []byte {
		return in6(ipv6To(to, "::", icmpv6, 255, nsBody(options...)))
	}
	na := func(to, from string, options ...[]byte) []byte {
		return in6(ipv6To(to, from, icmpv6, 255, neighbour(solicited, 0, asked, options...)))
	}
	unsolicited := func(to string, options ...[]byte) []byte {
		return in6(ipv6To(to, linkLocal, icmpv6, 255, neighbour(advertisement, 0, asked, options...)))
	}
	behind := func(next int, headers ...[]byte) []byte {
		return in6(ipv6(global, next, 255, join(headers...), nsBody(linkOption(1))))
	}
	one := func(kind Kind, ip string) []said { return []said{{Kind: kind, IP: addr(ip), MAC: podMAC}} }
	announced := append(one(Announced, global), data(global)...)
	tentative, answer, gratuitous := one(Tentative, asked), one(Answer, asked), one(Gratuitous, asked)
	zero := make([]byte, 8)

	return []parseCase{
		{"ns with mac", ns(linkOption(1)), announced},
		{"ns with mac behind 15 options", ns(slices.Repeat(option(14, 8), 15), linkOption(1)), announced},
		{"ns with mac behind an option of 248 bytes", ns(option(14, 248), linkOption(1)), announced},
		{"ns with mac behind 16 options, lax", ns(slices.Repeat(option(14, 8), 16), linkOption(1)), announced},
		{"ns with two macs, the second one long", ns(linkOption(1), option(1, 16)), announced},
		{"ns without mac", ns(), data(global)},
		{"ns without mac, 15 options", ns(slices.Repeat(option(14, 8), 15)), data(global)},
		{"ns with the mac of the target", ns(linkOption(2)), data(global)},
		{"ns with mac of 16 bytes", ns(option(1, 16)), data(global)},
		{"ns with mac of 16 bytes, then 8", ns(option(1, 16), linkOption(1)), data(global)},
		{"ns with mac, then an option of size 0", ns(linkOption(1), zero), data(global)},
		{"ns with mac behind an option of size 0", ns(zero, linkOption(1)), data(global)},
		{"ns with mac, then an option cut", ns(linkOption(1), option(14, 16)[:8]), data(global)},
		{"ns with mac cut", ns(linkOption(1)[:7]), data(global)},
		{"ns with mac, then a byte", ns(linkOption(1), []byte{14}), data(global)},
		{"ns from link-local", in6(ipv6(linkLocal, icmpv6, 255, nsBody(linkOption(1)))), nil},
		{"ns from a mapped address", in6(ipv6("::ffff:10.0.0.1", icmpv6, 255, nsBody(linkOption(1)))), nil},
		{"ns with hop limit 254", in6(ipv6(global, icmpv6, 254, nsBody(linkOption(1)))), data(global)},
		{"ns with code 1", in6(ipv6(global, icmpv6, 255, neighbour(solicitation, 1, asked, linkOption(1)))), data(global)},
		{"ns of a multicast target", in6(ipv6(global, icmpv6, 255, neighbour(solicitation, 0, allNodes, linkOption(1)))), data(global)},
		{"ns padded", in6(join(ipv6(global, icmpv6, 255, nsBody()), linkOption(1))), data(global)},
		{"ns with mac padded", in6(join(ipv6(global, icmpv6, 255, nsBody(linkOption(1))), zero)), announced},
		{"ns with padding as options", in6(ofSize(0, join(ipv6(global, icmpv6, 255, nsBody()), linkOption(1)))), announced},
		{"ns of a packet that is too short", in6(ofSize(1, ipv6(global, icmpv6, 255, nsBody(linkOption(1))))), data(global)},
		{"ns cut by its header", in6(ofSize(-9, ipv6(global, icmpv6, 255, nsBody(linkOption(1))))), data(global)},
		{"ns of size 0", in6(ofSize(-32, ipv6(global, icmpv6, 255, nsBody(linkOption(1))))), data(global)},

		{"ns behind extensions", behind(hopByHop, extension(destOption, 8), extension(routing, 8), extension(destOption, 24), extension(icmpv6, 16)), announced},
		{"ns behind 100 extensions", behind(destOption, chain(100, icmpv6)), announced},
		{"ns at byte 2024", behind(destOption, chain(248, icmpv6)), announced},
		{"ns at byte 2032", behind(destOption, chain(249, icmpv6)), data(global)},
		{"ns behind a long extension", behind(destOption, extension(icmpv6, 1024)), announced},
		{"ns in a fragment", behind(fragment, extension(icmpv6, 8)), data(global)},
		{"ns in a fragment behind an extension", behind(destOption, extension(fragment, 8), extension(icmpv6, 8)), data(global)},
		{"ns with an extension beyond the packet", behind(destOption, []byte{icmpv6, 255, 0, 0, 0, 0, 0, 0}), data(global)},
		{"ns behind options of a packet of size 0", in6(ofSize(-40, ipv6(global, hopByHop, 255, extension(icmpv6, 8), nsBody(linkOption(1))))), announced},
		{"ns behind options, of size 8", in6(ofSize(-32, ipv6(global, hopByHop, 255, extension(icmpv6, 8), nsBody(linkOption(1))))), data(global)},
		{"ns behind other options of a packet of size 0", in6(ofSize(-40, ipv6(global, destOption, 255, extension(icmpv6, 8), nsBody(linkOption(1))))), data(global)},

		{"dad", dad(askedGroup), tentative},
		{"dad with nonce", dad(askedGroup, option(14, 8)), tentative},
		{"dad with the mac of a target", dad(askedGroup, linkOption(2)), tentative},
		{"dad with more options than are read", dad(askedGroup, slices.Repeat(option(14, 8), 20)), tentative},
		{"dad to another solicited-node group", dad("ff02::1:ffff:ffff"), tentative},
		{"dad with mac", dad(askedGroup, linkOption(1)), nil},
		{"dad with an option of size 0", dad(askedGroup, zero), nil},
		{"dad to all nodes", dad(allNodes), nil},
		{"dad to a group of another scope", dad("ff05::1:ff00:9"), nil},
		{"dad to nearly a group", dad("ff02::1:fe00:9"), nil},
		{"dad to the target", dad(asked), nil},
		{"dad with hop limit 64", in6(ipv6To(askedGroup, "::", icmpv6, 64, nsBody())), nil},
		{"dad of a link-local address", in6(ipv6To("ff02::1:ff00:1", "::", icmpv6, 255, neighbour(solicitation, 0, linkLocal))), nil},

		{"na", na("fe80::2", linkLocal, linkOption(2)), answer},
		{"na without mac", na("fe80::2", linkLocal), answer},
		{"na from a global address", na("fe80::2", global, linkOption(2)), append(answer, data(global)...)},
		{"na to all nodes", na(allNodes, linkLocal, linkOption(2)), nil},
		{"na with mac of 16 bytes", na("fe80::2", linkLocal, option(2, 16)), nil},
		{"na with an option of size 0", na("fe80::2", linkLocal, zero), nil},
		{"na with another's mac of 16 bytes", na("fe80::2", linkLocal, option(1, 16)), answer},
		{"na with more options than are read", na("fe80::2", linkLocal, slices.Repeat(option(14, 8), 20)), answer},
		{"na with hop limit 1", in6(ipv6("fe80::2", icmpv6, 1, neighbour(solicited, 0, asked))), nil},
		{"na of a multicast target", in6(ipv6(linkLocal, icmpv6, 255, neighbour(solicited, 0, "ff02::9"))), nil},
		{"na of a mapped target", in6(ipv6(linkLocal, icmpv6, 255, neighbour(solicited, 0, "::ffff:10.0.0.1"))), nil},
		{"na in a tag", frame(podMAC, typeIPv6, ipv6(linkLocal, icmpv6, 255, neighbour(solicited, 0, asked)), [2]int{typeVLAN, 9}), []said{{Answer, addr(asked), podMAC, VLAN{Outer: 9}}}},
		{"na in two tags behind extensions", frame(podMAC, typeIPv6, ipv6(linkLocal, destOption, 255, chain(9, icmpv6), neighbour(solicited, 0, asked)), [2]int{typeQinQ, 100}, [2]int{typeVLAN, 9}), []said{{Answer, addr(asked), podMAC, VLAN{100, 9}}}},
		{"na behind 100 extensions", in6(ipv6(linkLocal, destOption, 255, chain(100, icmpv6), neighbour(solicited, 0, asked))), answer},
		{"na unsolicited to all nodes", unsolicited(allNodes, linkOption(2)), gratuitous},
		{"na unsolicited to one", unsolicited("fe80::2", linkOption(2)), gratuitous},
		{"na unsolicited with all other flags", in6(ipv6(linkLocal, icmpv6, 255, neighbour(advertisement|0xbf<<8, 0, asked))), gratuitous},
		{"na unsolicited with an option of size 0", unsolicited(allNodes, zero), nil},
		{"another icmpv6 type", in6(ipv6(global, icmpv6, 255, neighbour(137, 0, asked, linkOption(1)))), data(global)},
	}
}

// TestAfterAnother: a message is not read from what is left of the one before.
func TestAfterAnother(t *testing.T) {
	for _, mode := range []Mode{TC, XDP} {
		t.Run(string(mode), func(t *testing.T) {
			o := load(t, Options{Mode: mode})
			whole := frame(podMAC, typeIPv6, ipv6(linkLocal, icmpv6, 255, neighbour(solicited, 0, asked, linkOption(2))))
			enter(t, o, loopback, 1)
			for size := 14 + 40; size < len(whole); size++ {
				run(t, o, loopback, whole)
				wantRecords(t, o, "the whole message", said{Kind: Answer, IP: addr(asked), MAC: podMAC})
				run(t, o, loopback, whole[:size])
				wantRecords(t, o, "cut by the frame")
				run(t, o, loopback, frame(podMAC, typeIPv6, ofSize(0, whole[14:size])))
				if size == 14+40+24 {
					wantRecords(t, o, "without options", said{Kind: Answer, IP: addr(asked), MAC: podMAC})
				} else {
					wantRecords(t, o, "cut by frame and header")
				}
			}
		})
	}
}
