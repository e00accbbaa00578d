package parser

import (
	"bytes"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/dupip/dupip/bpf"
)

const (
	// readBytes of an IPv6 packet and readOptions of a message are read by the observer.
	readBytes, readOptions = 2048, 16
	// maxTags: a third VLAN tag is not understood.
	maxTags = 2
)

// ourMAC is the source of our own probes.
var ourMAC = [6]byte{2, 0xd0, 1, 2, 3, 4}

// reference returns what a frame says, in the order of the records.
func reference(frame []byte) []said {
	all := []said{}
	var eth layers.Ethernet
	if eth.DecodeFromBytes(frame, gopacket.NilDecodeFeedback) != nil {
		return all
	}
	var ids []uint16
	etherType, rest := eth.EthernetType, frame[14:]
	for tags := 0; etherType == layers.EthernetTypeDot1Q || etherType == layers.EthernetTypeQinQ; tags++ {
		var tag layers.Dot1Q
		if tags == maxTags || tag.DecodeFromBytes(rest, gopacket.NilDecodeFeedback) != nil {
			return all
		}
		if tag.VLANIdentifier != 0 { // 0 is a priority tag, IEEE 802.1Q section 6.9
			ids = append(ids, tag.VLANIdentifier)
		}
		etherType, rest = tag.Type, rest[4:]
	}
	p := packet{mac: [6]byte(eth.SrcMAC)}
	if len(ids) > 0 {
		p.vlan.Outer = ids[0]
	}
	if len(ids) > 1 {
		p.vlan.Inner = ids[1]
	}
	switch etherType {
	case layers.EthernetTypeARP:
		p.arp(rest)
	case layers.EthernetTypeIPv4:
		p.ipv4(rest)
	case layers.EthernetTypeIPv6:
		p.ipv6(rest)
	}
	return append(all, p.all...)
}

// packet is a frame under way.
type packet struct {
	mac  [6]byte
	vlan bpf.VLAN
	all  []said
}

// say adds a record if the address counts (RFC 6890).
func (p *packet) say(kind bpf.Kind, mac [6]byte, ip netip.Addr) {
	switch {
	case ip.Is4In6(), ip.IsUnspecified(), ip.IsLoopback(), ip.IsLinkLocalUnicast(), ip.IsMulticast(),
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}), ip.Is4() && ip.As4()[0] == 0:
	default:
		p.all = append(p.all, said{kind, ip, mac, p.vlan})
	}
}

// arp reads RFC 826 with the meanings of RFC 5227. Linux also accepts the hardware type of IEEE 802.
func (p *packet) arp(b []byte) {
	var arp layers.ARP
	if arp.DecodeFromBytes(b, gopacket.NilDecodeFeedback) != nil ||
		arp.AddrType != layers.LinkTypeEthernet && arp.AddrType != 6 ||
		arp.Protocol != layers.EthernetTypeIPv4 || arp.HwAddressSize != 6 || arp.ProtAddressSize != 4 {
		return
	}
	mac := [6]byte(arp.SourceHwAddress)
	sender, target := netip.AddrFrom4([4]byte(arp.SourceProtAddress)), netip.AddrFrom4([4]byte(arp.DstProtAddress))
	request, reply := arp.Operation == layers.ARPRequest, arp.Operation == layers.ARPReply
	switch {
	case !request && !reply:
	case sender.IsUnspecified():
		if request {
			p.say(bpf.Tentative, mac, target)
		}
	case sender == target:
		p.say(bpf.Gratuitous, mac, sender)
	case request:
		p.say(bpf.Announced, mac, sender)
	default:
		p.say(bpf.Answer, mac, sender)
	}
}

// ipv4 reads RFC 791. The observer takes the source of every header that begins well; sizes and options are
// other programs' business, so those of gopacket are left out.
func (p *packet) ipv4(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return
	}
	header := bytes.Clone(b[:20])
	header[0], header[2], header[3] = 0x45, 0, 20
	var ip layers.IPv4
	if ip.DecodeFromBytes(header, gopacket.NilDecodeFeedback) == nil {
		p.say(bpf.Data, p.mac, netip.AddrFrom4([4]byte(ip.SrcIP)))
	}
}

// ipv6 reads RFC 8200.
func (p *packet) ipv6(b []byte) {
	var ip layers.IPv6
	// It also has errors about the payload, after it has read the header.
	_ = ip.DecodeFromBytes(b, gopacket.NilDecodeFeedback)
	if len(b) < 40 || ip.Version != 6 {
		return
	}
	if ip.HopLimit == 255 {
		p.neighbour(&ip, b)
	}
	p.say(bpf.Data, p.mac, netip.AddrFrom16([16]byte(ip.SrcIP)))
}

// neighbour finds a message of RFC 4861 in an IPv6 packet.
func (p *packet) neighbour(ip *layers.IPv6, b []byte) {
	end := 40 + int(ip.Length)
	if ip.Length == 0 && ip.NextHeader == layers.IPProtocolIPv6HopByHop {
		end = len(b) // Linux does not look whether it is a jumbogram
	}
	if end > len(b) {
		return // truncated
	}
	rest, next := b[40:end], ip.NextHeader
	at := func() int { return end - len(rest) }
	for next == layers.IPProtocolIPv6HopByHop || next == layers.IPProtocolIPv6Routing || next == layers.IPProtocolIPv6Destination {
		var header layers.IPv6ExtensionSkipper
		if header.DecodeFromBytes(rest, gopacket.NilDecodeFeedback) != nil {
			return
		}
		rest, next = header.Payload, header.NextHeader
	}
	var icmp layers.ICMPv6
	if next != layers.IPProtocolICMPv6 || at()+24 > readBytes || icmp.DecodeFromBytes(rest, gopacket.NilDecodeFeedback) != nil {
		return
	}
	source, destination := netip.AddrFrom16([16]byte(ip.SrcIP)), netip.AddrFrom16([16]byte(ip.DstIP))
	body := icmp.Payload
	switch icmp.TypeCode {
	case layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0):
		var ns layers.ICMPv6NeighborSolicitation
		err := ns.DecodeFromBytes(body, gopacket.NilDecodeFeedback)
		mac, valid := option(ns.Options, err, layers.ICMPv6OptSourceAddress, at()+24, end)
		if len(body) < 20 || !valid || ns.TargetAddress.IsMulticast() {
			return
		}
		target := netip.AddrFrom16([16]byte(ns.TargetAddress))
		switch {
		case source.IsUnspecified(): // RFC 4861 section 7.1.1
			if isSolicitedNode(destination) && mac != present {
				p.say(bpf.Tentative, p.mac, target)
			}
		case [3]byte(p.mac[:3]) == [3]byte(ourMAC[:3]):
			p.say(bpf.Tentative, p.mac, target)
		case mac != absent:
			p.say(bpf.Announced, p.mac, source)
		}
	case layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0):
		var na layers.ICMPv6NeighborAdvertisement
		err := na.DecodeFromBytes(body, gopacket.NilDecodeFeedback)
		_, valid := option(na.Options, err, layers.ICMPv6OptTargetAddress, at()+24, end)
		if len(body) < 20 || !valid || na.TargetAddress.IsMulticast() ||
			na.Solicited() && destination.IsMulticast() { // RFC 4861 section 7.1.2
			return
		}
		kind := bpf.Gratuitous
		if na.Solicited() {
			kind = bpf.Answer
		}
		p.say(kind, p.mac, netip.AddrFrom16([16]byte(na.TargetAddress)))
	}
}

type presence int

const (
	absent presence = iota
	present
	unread
)

// option looks for a link-layer address, of which the first must be one of Ethernet, and reports whether the
// options, which begin at a byte of the packet and end at another, are valid. Those behind the first 16, or
// behind the bytes that are read, may be anything of at least 8 bytes.
func option(options layers.ICMPv6Options, err error, kind layers.ICMPv6Opt, at, end int) (found presence, valid bool) {
	for i, o := range options {
		if i == readOptions || at >= readBytes {
			break
		}
		if o.Type == kind && found == absent {
			if len(o.Data) != 6 {
				return absent, false
			}
			found = present
		}
		at += 2 + len(o.Data)
	}
	if len(options) < readOptions && (at == end || at < readBytes || at+8 > end) {
		return found, err == nil
	}
	if found == absent {
		found = unread
	}
	return found, true
}

// isSolicitedNode reports whether a group is ff02::1:ff00:0/104 (RFC 4291 section 2.7.1).
func isSolicitedNode(group netip.Addr) bool {
	return netip.MustParsePrefix("ff02::1:ff00:0/104").Contains(group)
}
