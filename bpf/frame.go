package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// FrameKind is the kind of a captured frame. Each has a budget of its own.
type FrameKind uint8

// The kinds, as enum frame_kind of include/table.h has them.
const (
	AnswerToUs   FrameKind = iota // an answer to this node's probe
	OtherAnswer                   // of ARP or NDP
	Announcement                  // what else ARP or NDP says
	Ordinary                      // any other packet
	FrameKinds                    // how many there are
)

const (
	// FramesOfKind is how many frames of one kind are captured of an address behind one interface.
	FramesOfKind = 16
	// MaxFrames are all of them.
	MaxFrames = int(FrameKinds) * FramesOfKind
)

// Capture captures the next packets that are about these addresses, or from them, until [Observer.Release]. One that is
// captured already stays as it is. While any is, packets of the first address of each interface cost no more for that, those of
// others a look-up. The error matches [os.ErrClosed] after Close.
func (o *Observer) Capture(addresses []Address) error {
	wanted := observerCapture{Left: [FrameKinds]uint32{FramesOfKind, FramesOfKind, FramesOfKind, FramesOfKind}}
	return o.setCaptured(addresses, 1, ebpf.ErrKeyExist, func(key address) error {
		return o.captures.Update(key, &wanted, ebpf.UpdateNoExist)
	})
}

// Release ends what Capture began. It is no error if an address is not captured.
func (o *Observer) Release(addresses []Address) error {
	return o.setCaptured(addresses, -1, ebpf.ErrKeyNotExist, func(key address) error { return o.captures.Delete(key) })
}

// setCaptured changes the addresses that are captured, and their number by step for each. It ignores one error.
func (o *Observer) setCaptured(addresses []Address, step int, ignored error, set func(address) error) error {
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	if o.unloaded {
		return fmt.Errorf("capture packets: %w", os.ErrClosed)
	}
	var errs []error
	for _, a := range addresses {
		switch err := set(a.key()); {
		case err == nil:
			o.captured += step
		case !errors.Is(err, ignored):
			errs = append(errs, fmt.Errorf("capture packets of %s: %w", a.IP, err))
		}
	}
	if err := o.collection.Variables["capturing"].Set(uint32(o.captured)); err != nil {
		errs = append(errs, fmt.Errorf("set whether packets are captured: %w", err))
	}
	if step > 0 {
		// Last: a program that finds the new epoch finds the address captured, and fills no line with it.
		errs = append(errs, o.renewEpoch())
	}
	return errors.Join(errs...)
}

// LostFrames counts the frames of addresses that are captured for which the ring had no room. The others are captured later.
func (o *Observer) LostFrames(addresses []Address) (lost int) {
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	if o.unloaded {
		return 0
	}
	for _, a := range addresses {
		var value observerCapture
		if o.captures.Lookup(a.key(), &value) == nil {
			lost += int(value.Lost)
		}
	}
	return lost
}

// ReadFrame waits for the next captured frame. After Close the error matches [os.ErrClosed]. One of several concurrent
// calls gets a frame.
func (o *Observer) ReadFrame(f *Frame) error {
	return o.frames.read(f.decode)
}

// Frame is a packet of an address that is captured.
type Frame struct {
	Address
	// Time is when the packet was seen, on CLOCK_MONOTONIC.
	Time time.Duration
	Kind FrameKind
	// Length is that of the whole packet.
	Length int
	// Data is the packet if it is one of ARP or NDP, up to 260 bytes, else its headers up to that of layer 4, up to 96 bytes.
	Data []byte
}

const (
	// frameHeader is the offset of bytes in struct frame of include/capture.h.
	frameHeader = 56
	maxHeaders  = 96
	tagBytes    = 4
)

// decode reads a frame as the BPF programs write it. It copies headers only: what pods say to each other is not kept.
func (f *Frame) decode(b []byte) error {
	if len(b) < frameHeader {
		return fmt.Errorf("%w: a frame of %d bytes, expected %d", errBadRecord, len(b), frameHeader)
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	captured := int(word(44))
	if captured > len(b)-frameHeader || word(52) >= uint32(FrameKinds) {
		return fmt.Errorf("%w: a frame of %d bytes with %d captured ones, kind %d", errBadRecord, len(b), captured, word(52))
	}
	*f = Frame{
		Address: Address{
			IP: netip.AddrFrom16([16]byte(b[8:24])).Unmap(), Ifindex: word(24), Generation: word(28),
			VLAN: VLAN{binary.LittleEndian.Uint16(b[32:]), binary.LittleEndian.Uint16(b[34:])},
		},
		Time: time.Duration(binary.LittleEndian.Uint64(b)), Kind: FrameKind(word(52)), Length: int(word(40)),
	}
	data := b[frameHeader : frameHeader+captured]
	// The kernel had moved the outer tag out of the packet.
	if tagType := b[50:52]; len(data) >= 12 && (tagType[0] != 0 || tagType[1] != 0) {
		data = slices.Concat(data[:12], []byte{tagType[0], tagType[1], b[49], b[48]}, data[12:])
		f.Length += tagBytes
	}
	f.Data = bytes.Clone(data[:headers(data)])
	return nil
}

// headers returns how many bytes at the beginning of an Ethernet frame are its headers up to that of layer 4, at most 96, or
// its ARP packet, neighbour solicitation or advertisement. Of a packet that it does not know it takes what it knows.
func headers(frame []byte) int {
	at, ether := 14, 0
	for at <= len(frame) {
		ether = int(binary.BigEndian.Uint16(frame[at-2:]))
		if ether != unix.ETH_P_8021Q && ether != unix.ETH_P_8021AD {
			break
		}
		at += tagBytes
	}
	at = min(at, len(frame))
	most, rest := maxHeaders, frame[at:]
	switch ether {
	case unix.ETH_P_ARP:
		at, most = at+28, len(frame)
	case unix.ETH_P_IP:
		at += ipv4Headers(rest)
	case unix.ETH_P_IPV6:
		n, whole := ipv6Headers(rest)
		if at += n; whole {
			most = len(frame)
		}
	}
	return min(at, most, len(frame))
}

// ipv4Headers returns how many bytes the headers of an IPv4 packet have; there may be fewer.
func ipv4Headers(packet []byte) int {
	if len(packet) < 20 {
		return len(packet)
	}
	n := max(int(packet[0]&15)*4, 20)
	if isFragment := binary.BigEndian.Uint16(packet[6:])&0x1fff != 0; isFragment {
		return n
	}
	return n + transportHeader(packet[9], packet[min(n, len(packet)):])
}

// ipv6Headers is the same for IPv6. whole: it is a neighbour solicitation or advertisement, of that length.
func ipv6Headers(packet []byte) (n int, whole bool) {
	if len(packet) < 40 {
		return len(packet), false
	}
	next, n := packet[6], 40
	for n+8 <= len(packet) {
		size := 8
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			size = (int(packet[n+1]) + 1) * 8
		case unix.IPPROTO_FRAGMENT:
			if binary.BigEndian.Uint16(packet[n+2:])&^7 != 0 {
				return n + size, false
			}
		case unix.IPPROTO_ICMPV6:
			if kind := packet[n]; kind == 135 || kind == 136 {
				return max(40+int(binary.BigEndian.Uint16(packet[4:])), n+size), true
			}
			return n + size, false
		default:
			return n + transportHeader(next, packet[n:]), false
		}
		next, n = packet[n], n+size
	}
	return n, false
}

// transportHeader returns the length of a header of layer 4, 0 if it does not know the protocol.
func transportHeader(protocol byte, segment []byte) int {
	switch protocol {
	case unix.IPPROTO_TCP: // with its options
		if len(segment) > 12 {
			return max(int(segment[12]>>4)*4, 20)
		}
		return 20
	case unix.IPPROTO_ICMP, unix.IPPROTO_UDP:
		return 8
	case unix.IPPROTO_SCTP:
		return 12
	}
	return 0
}
