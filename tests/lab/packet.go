package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/mdlayher/socket"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// packetSocket is an AF_PACKET socket on one device, or on all, of a netns.
type packetSocket struct{ *socket.Conn }

// openPacket opens a socket that receives every frame that comes in at a device; "" is every device.
func (n *Netns) openPacket(device string) (s packetSocket, err error) {
	ifindex := 0
	if device != "" {
		if ifindex, err = n.Ifindex(device); err != nil {
			return s, err
		}
	}
	err = n.with(func(fd netns.NsHandle) (err error) {
		s.Conn, err = socket.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0, "packets of "+device, &socket.Config{NetNS: int(fd)})
		return err
	})
	if err != nil {
		return s, fmt.Errorf("open packet socket in netns %s: %w", n.Name, err)
	}
	if err := errors.Join(
		s.SetsockoptInt(unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		s.SetsockoptInt(unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		s.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
		s.Bind(&unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifindex}),
	); err != nil {
		return s, errors.Join(fmt.Errorf("bind packet socket to %q in netns %s: %w", device, n.Name, err), s.Close())
	}
	return s, nil
}

// Packet is a frame that came in.
type Packet struct {
	// Frame begins with the Ethernet header. The kernel has removed the outer VLAN tag. The bytes are
	// valid during one call only.
	Frame []byte
	// VLAN is the id of the outer tag, 0 without one.
	VLAN uint16
	// Ifindex is the device.
	Ifindex int
}

// EtherType is the one behind the outer tag, 0 in a frame without a header.
func (p Packet) EtherType() uint16 {
	if len(p.Frame) < 14 {
		return 0
	}
	return binary.BigEndian.Uint16(p.Frame[12:])
}

// receive blocks for one frame. A device that goes down is no error.
func (s packetSocket) receive(buf []byte) (p Packet, err error) {
	oob := make([]byte, unix.CmsgSpace(20))
	for {
		size, oobn, _, from, err := s.Recvmsg(context.Background(), buf, oob, 0)
		if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			return p, err
		}
		p.Frame, p.VLAN = buf[:size], vlanTag(oob[:oobn])
		if ll, ok := from.(*unix.SockaddrLinklayer); ok {
			p.Ifindex = ll.Ifindex
		}
		return p, nil
	}
}

// vlanTag reads the VLAN id from the tpacket_auxdata of a received frame (linux/if_packet.h).
func vlanTag(oob []byte) uint16 {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20 &&
			binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
			return binary.NativeEndian.Uint16(m.Data[16:]) & 0xfff
		}
	}
	return 0
}

// htons is for the protocol numbers of packet sockets, which are in network order.
func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Listener passes on the packets that come in.
type Listener struct {
	socket packetSocket
	done   chan struct{}
}

// Listen calls each, on another goroutine, for every packet that comes in at a device of the netns; ""
// is every device, also those that are made later. It ends with Close, or with the lab.
func (n *Netns) Listen(device string, each func(Packet)) (*Listener, error) {
	socket, err := n.openPacket(device)
	if err != nil {
		return nil, err
	}
	l := &Listener{socket: socket, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for buf := make([]byte, 65536); ; {
			p, err := l.socket.receive(buf)
			if err != nil {
				return
			}
			each(p)
		}
	}()
	n.lab.OnClose(l.Close)
	return l, nil
}

// Close ends it, and waits for the last call. It may be called more than once.
func (l *Listener) Close() error {
	err := l.socket.Close()
	<-l.done
	return err
}

// Tap counts packets.
type Tap struct {
	*Listener
	count atomic.Int64
}

// Tap starts to count the packets that come in at a device and that match accepts; nil accepts all.
func (n *Netns) Tap(device string, match func(Packet) bool) (*Tap, error) {
	t := &Tap{}
	var err error
	t.Listener, err = n.Listen(device, func(p Packet) {
		if match == nil || match(p) {
			t.count.Add(1)
		}
	})
	return t, err
}

// Count is the number of packets so far.
func (t *Tap) Count() int { return int(t.count.Load()) }

// HasPacketSocket returns an error unless a packet socket is bound to a device of the netns: some
// programs do not report when they begin to listen.
func (n *Netns) HasPacketSocket(ifindex int) error {
	var text []byte
	if err := n.Exec(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/packet")
		return err
	}); err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == strconv.Itoa(ifindex) {
			return nil
		}
	}
	return fmt.Errorf("no packet socket on interface %d of netns %s", ifindex, n.Name)
}
