package bpf

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestWhatLinuxLearns sends messages to the kernel itself: what its neighbour table or its duplicate
// address detection takes from a message must be in a record, too.
func TestWhatLinuxLearns(t *testing.T) {
	isolate(t)
	p := newPod(t, "host0")
	o := load(t, Options{Mode: TC})
	attach(t, o, p.ifindex, 1)
	host, err := netlink.LinkByName("host0")
	if err != nil {
		t.Fatal(err)
	}
	const own, ownGroup = "2001:db8::fe", "ff02::1:ff00:fe"
	address, err := netlink.ParseAddr(own + "/64")
	if err != nil {
		t.Fatal(err)
	}
	address.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrAdd(host, address); err != nil {
		t.Fatal(err)
	}
	// A worker joins the group (addrconf_dad_begin, net/ipv6/addrconf.c).
	poll(t, func() bool {
		groups, err := os.ReadFile("/proc/thread-self/net/igmp6")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(groups), "ff0200000000000000000001ff0000fe")
	})
	for name, value := range map[string]string{
		"ipv4/conf/host0/arp_accept": "1",
		"ipv4/neigh/host0/locktime":  "0",
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}

	in6 := func(source, destination string, next, hopLimit int, parts ...[]byte) []byte {
		packet := ipv6To(destination, source, next, hopLimit, parts...)
		return frame(podMAC, typeIPv6, withChecksum(packet, parts[len(parts)-1]))
	}
	ask := func(options ...[]byte) []byte { return neighbour(solicitation, 0, own, options...) }
	ns := func(options ...[]byte) []byte { return in6(global, ownGroup, icmpv6, 255, ask(options...)) }
	behind := func(next int, headers ...[]byte) []byte {
		return in6(global, ownGroup, next, 255, append(headers, ask(linkOption(1)))...)
	}
	na := func(to string, kind int, options ...[]byte) []byte {
		return in6(linkLocal, to, icmpv6, 255, neighbour(kind|0x20<<8, 0, asked, options...)) // override
	}
	dad := func(to string, options ...[]byte) []byte { return in6("::", to, icmpv6, 255, ask(options...)) }
	hardware := func(kind byte, packet []byte) []byte {
		packet[1] = kind
		return frame(podMAC, typeARP, packet)
	}
	toHost := func(b []byte) []byte { return join(host.Attrs().HardwareAddr, b[6:]) }
	zero := make([]byte, 8)

	for i, c := range []struct {
		name  string
		about string // the address that Linux learns the MAC of, or for dad that it answers for
		frame []byte
		// linux is whether Linux takes anything from it, lax whether a record is made though it does not.
		linux, lax bool
	}{
		{"arp request", podIP2, hardware(1, arp(1, otherMAC, podIP2, hostIP)), true, false},
		{"arp reply", podIP2, hardware(1, arp(2, otherMAC, podIP2, hostIP)), true, false},
		{"arp request, ieee 802", podIP2, hardware(6, arp(1, otherMAC, podIP2, hostIP)), true, false},
		{"arp reply, ieee 802", podIP2, hardware(6, arp(2, otherMAC, podIP2, hostIP)), true, false},
		{"arp reply, token ring", podIP2, hardware(4, arp(2, otherMAC, podIP2, hostIP)), false, false},
		{"arp announcement", podIP2, hardware(1, arp(1, otherMAC, podIP2, podIP2)), true, false},
		{"gratuitous arp reply", podIP2, hardware(1, arp(2, otherMAC, podIP2, podIP2)), true, false},
		{"arp reply to a multicast address", podIP2, hardware(1, arp(2, otherMAC, podIP2, "224.0.0.1")), false, true},
		{"reverse arp", podIP2, hardware(1, arp(4, otherMAC, podIP2, hostIP)), false, false},

		{"ns with mac", global, ns(linkOption(1)), true, false},
		{"ns without mac", global, ns(), false, false},
		{"ns to one", global, in6(global, own, icmpv6, 255, ask(linkOption(1))), true, false},
		{"ns with mac behind 15 options", global, ns(slices.Repeat(option(14, 8), 15), linkOption(1)), true, false},
		{"ns with mac behind 40 options", global, ns(slices.Repeat(option(14, 8), 40), linkOption(1)), true, false},
		{"ns with 40 options and no mac", global, ns(slices.Repeat(option(14, 8), 40)), false, true},
		{"ns with two macs, the second one long", global, ns(linkOption(1), option(1, 16)), true, false},
		{"ns with mac of 16 bytes", global, ns(option(1, 16)), false, false},
		{"ns with mac, then an option of size 0", global, ns(linkOption(1), zero), false, false},
		{"ns with mac, then an option cut", global, ns(linkOption(1), option(14, 16)[:8]), false, false},
		{"ns with mac, then a byte", global, ns(linkOption(1), []byte{14}), false, false},
		{"ns with hop limit 254", global, in6(global, ownGroup, icmpv6, 254, ask(linkOption(1))), false, false},
		{"ns with code 1", global, in6(global, ownGroup, icmpv6, 255, neighbour(solicitation, 1, own, linkOption(1))), false, false},
		{"ns with a wrong checksum", global, frame(podMAC, typeIPv6, ipv6To(ownGroup, global, icmpv6, 255, ask(linkOption(1)))), false, true},
		{"ns with padding as option", global, join(ns(), linkOption(1)), false, false},
		{"ns with mac padded", global, join(ns(linkOption(1)), zero), true, false},
		{"ns of a packet that is too short", global, ofSizeFrame(1, ns(linkOption(1))), false, false},
		{"ns behind 100 extensions", global, behind(destOption, chain(100, icmpv6)), true, false},
		{"ns behind all extensions of a frame", global, behind(destOption, chain(178, icmpv6)), true, false},
		{"ns behind options", global, behind(hopByHop, padded(extension(icmpv6, 8))), true, false},
		{"ns behind options of a packet of size 0", global, ofSizeFrame(-40, behind(hopByHop, padded(extension(icmpv6, 8)))), true, false},
		{"ns behind options that come second", global, behind(destOption, padded(extension(hopByHop, 8)), padded(extension(icmpv6, 8))), false, true},
		{"ns behind a routing header", global, toHost(in6(global, own, routing, 255, extension(icmpv6, 8), ask(linkOption(1)))), true, false},
		{"ns in an atomic fragment", global, behind(fragment, extension(icmpv6, 8)), false, false},

		{"na", asked, na(own, solicited, linkOption(2)), true, false},
		{"na behind 100 extensions", asked, in6(linkLocal, own, destOption, 255, chain(100, icmpv6), neighbour(solicited|0x20<<8, 0, asked, linkOption(2))), true, false},
		{"na to all nodes", asked, na(allNodes, solicited, linkOption(2)), false, false},
		{"na unsolicited", asked, na(allNodes, advertisement, linkOption(2)), true, false},
		{"na unsolicited to one", asked, na(own, advertisement, linkOption(2)), true, false},
		{"na from no address", asked, in6("::", allNodes, icmpv6, 255, neighbour(advertisement|0x20<<8, 0, asked, linkOption(2))), true, false},
		{"na with mac of 16 bytes", asked, na(own, solicited, option(2, 16)), false, false},
		{"na with an option of size 0", asked, na(own, solicited, linkOption(2), zero), false, false},

		{"dad", own, dad(ownGroup), true, false},
		{"dad with nonce", own, dad(ownGroup, option(14, 8)), true, false},
		{"dad with 40 options", own, dad(ownGroup, slices.Repeat(option(14, 8), 40)), true, false},
		{"dad with mac", own, dad(ownGroup, linkOption(1)), false, false},
		{"dad to the address", own, dad(own), false, false},
	} {
		entry := &netlink.Neigh{
			LinkIndex: p.ifindex, IP: net.ParseIP(c.about), State: netlink.NUD_STALE,
			HardwareAddr: net.HardwareAddr{2, 9, 9, 9, 9, 9},
		}
		enter(t, o, p.ifindex, uint32(i))
		records(t, o)
		answers := advertised(t)
		if c.about != own {
			if err := netlink.NeighSet(entry); err != nil {
				t.Fatal(err)
			}
			// An ARP reply changes no entry that is as young as a tick (arp_process).
			set := monotonic(t)
			poll(t, func() bool { return coarse(t) > set+20*time.Millisecond })
		}
		p.send(t, c.frame)
		// A veth keeps the order: when this is learned, so is what was before.
		marker := net.IPv4(10, 0, 0, 77)
		_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: p.ifindex, IP: marker})
		p.send(t, frame(podMAC, typeARP, arp(1, otherMAC, marker.String(), hostIP)))
		poll(t, func() bool { return bytes.Equal(macOf(t, p.ifindex, marker), otherMAC[:]) })

		linux := advertised(t) > answers
		if c.about != own {
			linux = bytes.Equal(macOf(t, p.ifindex, entry.IP), otherMAC[:])
		}
		recorded := slices.ContainsFunc(records(t, o), func(r Record) bool {
			return r.Kind != Data && r.IP == addr(c.about)
		})
		if linux != c.linux {
			t.Errorf("%s: Linux took it: %v, want %v", c.name, linux, c.linux)
		}
		if recorded != (c.linux || c.lax) {
			t.Errorf("%s: recorded: %v, Linux took it: %v", c.name, recorded, linux)
		}
	}
}

const podIP2 = "10.0.0.2"

// withChecksum is an IPv6 packet that ends with an ICMPv6 message, whose checksum it fills in.
func withChecksum(packet, message []byte) []byte {
	packet = join(packet)
	size := make([]byte, 4)
	binary.BigEndian.PutUint32(size, uint32(len(message)))
	sum := uint32(0)
	for pair := range slices.Chunk(join(packet[8:40], size, []byte{0, 0, 0, icmpv6}, message), 2) {
		sum += uint32(pair[0]) << 8
		if len(pair) == 2 {
			sum += uint32(pair[1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[len(packet)-len(message)+2:], ^uint16(sum))
	return packet
}

// ofSizeFrame is ofSize of the packet in a frame.
func ofSizeFrame(more int, b []byte) []byte { return join(b[:14], ofSize(more, b[14:])) }

// padded is an extension of 8 bytes with one option, which fills it.
func padded(header []byte) []byte {
	header[2], header[3] = 1, 4 // PadN
	return header
}

// advertised counts the advertisements that the kernel sent in this netns.
func advertised(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/snmp6")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "Icmp6OutNeighborAdvertisements" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("there is no counter")
	return 0
}

// macOf is what the neighbour table has.
func macOf(t *testing.T, ifindex int, ip net.IP) net.HardwareAddr {
	t.Helper()
	entries, err := netlink.NeighList(ifindex, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IP.Equal(ip) {
			return entry.HardwareAddr
		}
	}
	return nil
}
