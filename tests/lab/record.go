package lab

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Datagram is a UDP datagram over IPv4.
type Datagram struct {
	From, To netip.AddrPort
	Payload  []byte
}

// Recording is what goes over the switch.
type Recording struct {
	*Listener

	mu        sync.Mutex
	datagrams []Datagram
}

// Record starts to record the datagrams to a port that go over the switch, the first limit of them.
// The lab ends it.
func (l *Lab) Record(port uint16, limit int) (*Recording, error) {
	r := &Recording{}
	var err error
	// A frame that enters at one port and leaves at another counts once.
	r.Listener, err = l.hub.Listen("", func(p Packet) {
		d, ok := ReadDatagram(p)
		if !ok || d.To.Port() != port {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.datagrams) < limit {
			d.Payload = slices.Clone(d.Payload)
			r.datagrams = append(r.datagrams, d)
		}
	})
	return r, err
}

// Datagrams are those so far.
func (r *Recording) Datagrams() []Datagram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.datagrams)
}

// ReadDatagram reads a packet with an unfragmented UDP datagram over IPv4. The payload is that of the packet.
func ReadDatagram(packet Packet) (d Datagram, ok bool) {
	const ethernet, ip, udp = 14, 20, 8
	if packet.EtherType() != etherIPv4 || packet.VLAN != 0 || len(packet.Frame) < ethernet+ip+udp {
		return d, false
	}
	p := packet.Frame[ethernet:]
	if p[0] != 0x45 || p[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
		return d, false
	}
	size := int(binary.BigEndian.Uint16(p[24:]))
	if size < udp || ip+size > len(p) {
		return d, false
	}
	d.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[12:16])), binary.BigEndian.Uint16(p[20:]))
	d.To = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[16:20])), binary.BigEndian.Uint16(p[22:]))
	d.Payload = p[ip+udp : ip+size]
	return d, true
}
