package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// packetSocket is an AF_PACKET socket on one device, or on all, in the netns of the thread that
// opened it.
type packetSocket struct {
	file *os.File
	raw  syscall.RawConn
}

// openPacket opens a socket that receives every frame that comes in at a device; "" is every device.
func openPacket(device string) (*packetSocket, error) {
	ifindex := 0
	if device != "" {
		ifi, err := net.InterfaceByName(device)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", device, err)
		}
		ifindex = ifi.Index
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	s := &packetSocket{file: os.NewFile(uintptr(fd), "packets of "+device)}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifindex}),
	)
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bind packet socket to %q: %w", device, err), s.close())
	}
	return s, nil
}

// close may be called more than once.
func (s *packetSocket) close() error {
	if err := s.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (s *packetSocket) send(frame []byte) error {
	_, err := s.file.Write(frame)
	return err
}

// Packet is a frame that came in.
type Packet struct {
	// Frame begins with the Ethernet header. The outer VLAN tag is not in it, because the kernel takes it
	// out. The bytes are the reader's for the length of one call.
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
func (s *packetSocket) receive(buf []byte) (p Packet, err error) {
	oob := make([]byte, unix.CmsgSpace(20))
	for {
		var size, oobn int
		var from unix.Sockaddr
		var failed error
		if err := s.raw.Read(func(fd uintptr) bool {
			size, oobn, _, from, failed = unix.Recvmsg(int(fd), buf, oob, 0)
			return !errors.Is(failed, unix.EAGAIN)
		}); err != nil {
			return p, err
		}
		if errors.Is(failed, unix.ENETDOWN) || errors.Is(failed, unix.ENOBUFS) {
			continue
		}
		p.Frame, p.VLAN = buf[:max(size, 0)], vlanTag(oob[:oobn])
		if ll, ok := from.(*unix.SockaddrLinklayer); ok {
			p.Ifindex = ll.Ifindex
		}
		return p, failed
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

// Listener hands on the packets that come in.
type Listener struct {
	socket *packetSocket
	done   chan struct{}
}

// Listen calls each, on another goroutine, for every packet that comes in at a device of the netns; ""
// is every device, also those that are made later. It ends with Close, or with the lab.
func (n *Netns) Listen(device string, each func(Packet)) (*Listener, error) {
	l := &Listener{done: make(chan struct{})}
	if err := n.Exec(func() (err error) {
		l.socket, err = openPacket(device)
		return err
	}); err != nil {
		return nil, fmt.Errorf("listen in netns %s: %w", n.Name, err)
	}
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
	err := l.socket.close()
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

// HasPacketSocket is an error unless a packet socket is bound to a device of the netns: some
// programs do not say when they have begun to listen.
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
	return fmt.Errorf("nobody listens at interface %d of netns %s", ifindex, n.Name)
}
