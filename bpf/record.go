package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Kind is what a packet said about an address.
type Kind uint8

// The kinds, with the numbers of include/record.h.
const (
	// Data: the source of an IPv4 or IPv6 packet.
	Data Kind = 1
	// Announced: the sender of an ARP request for another address (RFC 826), or of a neighbour solicitation with a
	// link-layer option (RFC 4861).
	Announced Kind = 2
	// Answer: any other ARP reply, or a solicited neighbour advertisement. Every one is recorded.
	Answer Kind = 3
	// Tentative: the sender checks whether the address is free, by an ARP probe (RFC 5227) or a
	// solicitation from :: (RFC 4862), and does not hold it yet. With a MAC of [Options].SolicitMAC it
	// is our own probe that came back.
	Tentative Kind = 4
	// Gratuitous: the sender claims the address without being asked, by an ARP packet with equal sender
	// and target addresses (RFC 5227 section 3) or a neighbour advertisement without the solicited flag
	// (RFC 4861 section 7.2.6). Every one is recorded, also of a known address. Linux answers a
	// [Tentative] solicitation in this way, too.
	Gratuitous Kind = 5
	// Delivered: an answer or a gratuitous packet that another sends to this interface, while it is watched ([Observer.Watch]).
	Delivered Kind = 6
)

// String returns the kind in lower case.
func (k Kind) String() string {
	if k < Data || k > Delivered {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return [...]string{
		Data: "data", Announced: "announced", Answer: "answer", Tentative: "tentative", Gratuitous: "gratuitous",
		Delivered: "delivered",
	}[k]
}

// VLAN holds the VLAN ids of a packet, 0 for no tag and for a priority tag (VID 0). A single tag is the
// outer one.
type VLAN struct{ Outer, Inner uint16 }

// Address is an address behind one interface, as the kernel's table of addresses has it.
type Address struct {
	// Ifindex is the interface at which its packets enter, Generation that of [AttachOptions].
	Ifindex, Generation uint32
	// IP is never an IPv4-mapped, loopback, link-local, multicast or unspecified address.
	IP   netip.Addr
	VLAN VLAN
}

// Record is what one packet said about one address.
type Record struct {
	Address
	// Time is when the packet was seen, on CLOCK_MONOTONIC.
	Time time.Duration
	Kind Kind
	// MAC is the sender's address of an ARP packet, else the source of the Ethernet frame.
	MAC [6]byte
	// To is the MAC that the packet was sent to, zero for Data.
	To [6]byte
}

// recordSize is sizeof(struct record) in include/record.h.
const recordSize = 56

var errBadRecord = errors.New("bad record")

// decode reads a record as the BPF programs write it, and allocates nothing.
func (r *Record) decode(b []byte) error {
	if len(b) < recordSize {
		return fmt.Errorf("%w: %d bytes, expected %d", errBadRecord, len(b), recordSize)
	}
	kind := Kind(b[30])
	if kind < Data || kind > Delivered {
		return fmt.Errorf("%w: unknown %v", errBadRecord, kind)
	}
	r.Time = time.Duration(binary.LittleEndian.Uint64(b))
	r.IP = netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	r.MAC = [6]byte(b[24:30])
	r.Kind = kind
	r.Ifindex = binary.LittleEndian.Uint32(b[32:])
	r.Generation = binary.LittleEndian.Uint32(b[36:])
	r.VLAN.Outer = binary.LittleEndian.Uint16(b[40:])
	r.VLAN.Inner = binary.LittleEndian.Uint16(b[42:])
	r.To = [6]byte(b[48:54])
	return nil
}
