package probe

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/bpf"
)

// Target is one address to probe behind one interface.
type Target struct {
	// Ifindex is the host-side device of the pod.
	Ifindex int
	IP      netip.Addr
	VLAN    bpf.VLAN // the tags of the frame
	// Source is that of this probe, see [Source].
	Source [6]byte
}

// Frame builds the probe of a target: an ARP probe for IPv4 (RFC 5227, section 2.1.1), a neighbour
// solicitation for IPv6 (RFC 4861, section 4.3).
func Frame(t Target) ([]byte, error) {
	mac := net.HardwareAddr(t.Source[:])
	frame := ethernet.Frame{Source: mac}
	var err error
	if t.IP.Is4() {
		frame.Destination, frame.EtherType = ethernet.Broadcast, ethernet.EtherTypeARP
		frame.Payload, err = arpProbe(t.IP, mac)
	} else {
		frame.EtherType = ethernet.EtherTypeIPv6
		frame.Destination, frame.Payload, err = neighbourSolicitation(t.IP, mac)
	}
	if err != nil {
		return nil, fmt.Errorf("building a probe for %s: %w", t.IP, err)
	}
	if t.VLAN.Outer != 0 {
		frame.VLAN = &ethernet.VLAN{ID: t.VLAN.Outer}
	}
	if t.VLAN.Inner != 0 {
		frame.ServiceVLAN, frame.VLAN = frame.VLAN, &ethernet.VLAN{ID: t.VLAN.Inner}
	}
	data, err := frame.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("building a probe for %s: %w", t.IP, err)
	}
	return data, nil
}

// arpProbe has the sender address 0.0.0.0: it makes no neighbour entry in the pod, and pods without a
// route to the sender answer it, too.
func arpProbe(target netip.Addr, mac net.HardwareAddr) ([]byte, error) {
	var unknown [6]byte
	packet, err := arp.NewPacket(arp.OperationRequest, mac, netip.IPv4Unspecified(), unknown[:], target)
	if err != nil {
		return nil, err
	}
	return packet.MarshalBinary()
}

// neighbourSolicitation has a link-local source and the link-layer option. A solicitation from "::" is
// duplicate address detection, and would make the pod's own detection fail. One from an address is
// ignored while the target is tentative (RFC 4862, section 5.4.3). All probes have the same one, because the pod makes a neighbour entry of
// it; the link-layer address is that of this probe, so that the entry leads the answer there.
func neighbourSolicitation(target netip.Addr, mac net.HardwareAddr) (net.HardwareAddr, []byte, error) {
	group, err := ndp.SolicitedNodeMulticast(target)
	if err != nil {
		return nil, nil, err
	}
	source := linkLocal(mac)
	message, err := ndp.MarshalMessageChecksum(&ndp.NeighborSolicitation{
		TargetAddress: target,
		Options:       []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac}},
	}, source, group)
	if err != nil {
		return nil, nil, err
	}
	const headerLen, icmpv6 = 40, 58
	packet := make([]byte, headerLen, headerLen+len(message))
	packet[0] = 6 << 4
	binary.BigEndian.PutUint16(packet[4:], uint16(len(message)))
	packet[6], packet[7] = icmpv6, ndp.HopLimit
	copy(packet[8:], source.AsSlice())
	copy(packet[24:], group.AsSlice())
	g := group.As16()
	// RFC 2464, section 7: 33:33 and the last four octets of the group.
	destination := net.HardwareAddr{0x33, 0x33, g[12], g[13], g[14], g[15]}
	return destination, append(packet, message...), nil
}

// linkLocal forms the link-local address of the sources that begin as a MAC does (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 15: 1})
}

// Socket sends probes on the interfaces of the netns that it was opened in. It is a [Sender] and safe
// for concurrent use.
type Socket struct{ fd int }

// Source derives what the source addresses of a node's probes begin with: locally administered, of the node, and the
// same for all agents of one boot. The rest of each is drawn at random.
//
// They are deliberately no addresses of the host. The host's stack would accept an answer to its own
// MAC and change its neighbour entry for that IP to the pod that answered last. With a duplicate, or a pod
// that answers for others, our probe would then redirect the host's traffic. Pods answer a foreign MAC just
// as well, and the host's stack drops the answer after the observer has seen it.
func Source(node, bootID string) [3]byte {
	for text := "dupip solicitation\x00" + node + "\x00" + bootID; ; {
		sum := sha256.Sum256([]byte(text))
		source := [3]byte{sum[0]&^1 | 2, sum[1], sum[2]} // unicast, locally administered
		if !slices.Contains(usual, [2]byte(source[:2])) {
			return source
		}
		text = string(sum[:])
	}
}

// usual are what others' locally administered MACs begin with: Calico's, CNI plugins', Docker's, QEMU's.
var usual = [][2]byte{{0xee, 0xee}, {0x0a, 0x58}, {0x02, 0x42}, {0x52, 0x54}}

// OpenSocket returns a Socket.
func OpenSocket() (*Socket, error) {
	// With protocol 0 the socket receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening packet socket (needs CAP_NET_RAW): %w", err)
	}
	// Another egress program in the qdisc layer could drop the frame.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bypassing the qdisc on packet socket: %w", err)
	}
	return &Socket{fd}, nil
}

// Send sends one probe and does not block. [unix.ENXIO] and [unix.ENODEV] mean that the interface is
// gone, [unix.ENETDOWN] that it is down.
func (s *Socket) Send(t Target) error {
	frame, err := Frame(t)
	if err != nil {
		return err
	}
	address := unix.SockaddrLinklayer{Ifindex: t.Ifindex, Halen: 6}
	copy(address.Addr[:], frame[:6])
	if err := unix.Sendto(s.fd, frame, unix.MSG_DONTWAIT, &address); err != nil {
		return fmt.Errorf("sending a probe for %s: %w", t.IP, err)
	}
	return nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }
