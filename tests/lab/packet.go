package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// packetSocket is an AF_PACKET socket on one device, in the netns of the thread that
// opened it. The kernel takes the outer VLAN tag out of what is received, so receive
// puts it back.
type packetSocket struct {
	file *os.File
}

// openPacket opens a socket that receives every frame of a device, also its own sends.
func openPacket(device string) (*packetSocket, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", device, err)
	}
	return openPackets(device, ifi.Index)
}

// openAllPackets is openPacket for every device.
func openAllPackets() (*packetSocket, error) { return openPackets("all devices", 0) }

func openPackets(name string, ifindex int) (*packetSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifindex}),
	); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind packet socket to %s: %w", name, err)
	}
	return &packetSocket{file: os.NewFile(uintptr(fd), "packet "+name)}, nil
}

func (s *packetSocket) close() error { return s.file.Close() }

func (s *packetSocket) send(frame []byte) error {
	_, err := s.file.Write(frame)
	return err
}

// receive blocks for one frame until the deadline (zero: none); own says that this
// side sent it.
func (s *packetSocket) receive(buf []byte, deadline time.Time) (frame []byte, own bool, err error) {
	if err := s.file.SetReadDeadline(deadline); err != nil {
		return nil, false, err
	}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	oob := make([]byte, unix.CmsgSpace(20))
	// Room for a tag that is put back behind the two addresses.
	space := buf[4:]
	var size, oobn int
	var from unix.Sockaddr
	var recvErr error
	err = raw.Read(func(fd uintptr) bool {
		size, oobn, _, from, recvErr = unix.Recvmsg(int(fd), space, oob, 0)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	if err := errors.Join(err, recvErr); err != nil {
		return nil, false, err
	}
	if ll, ok := from.(*unix.SockaddrLinklayer); ok {
		own = ll.Pkttype == unix.PACKET_OUTGOING
	}
	if tci, ok := vlanTag(oob[:oobn]); ok && size >= 12 {
		copy(buf, space[:12])
		binary.BigEndian.PutUint16(buf[12:], etherVLAN)
		binary.BigEndian.PutUint16(buf[14:], tci)
		return buf[:4+size], own, nil
	}
	return space[:size], own, nil
}

// vlanTag reads the tag from the tpacket_auxdata of a received frame (linux/if_packet.h).
func vlanTag(oob []byte) (tci uint16, ok bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		return binary.NativeEndian.Uint16(m.Data[16:]), status&unix.TP_STATUS_VLAN_VALID != 0
	}
	return 0, false
}

// Tap counts the frames that come in through one device of a netns.
type Tap struct {
	socket *packetSocket
	count  atomic.Int64
	done   chan struct{}
}

// Tap starts to count the frames that arrive at a device and that match accepts; nil
// accepts all. The lab closes it.
func (n *Node) Tap(device string, match func(frame []byte) bool) (*Tap, error) {
	t := &Tap{done: make(chan struct{})}
	if err := n.Exec(func() (err error) {
		t.socket, err = openPacket(device)
		return err
	}); err != nil {
		return nil, fmt.Errorf("tap %s in netns %s: %w", device, n.Name, err)
	}
	go func() {
		defer close(t.done)
		buf := make([]byte, 65536)
		for {
			frame, own, err := t.socket.receive(buf, time.Time{})
			if errors.Is(err, unix.ENETDOWN) {
				continue
			}
			if err != nil {
				return
			}
			if !own && (match == nil || match(frame)) {
				t.count.Add(1)
			}
		}
	}()
	n.lab.OnClose(t.Close)
	return t, nil
}

// Count is the number of frames so far.
func (t *Tap) Count() int { return int(t.count.Load()) }

// Close stops counting. It may be called more than once.
func (t *Tap) Close() error {
	err := t.socket.close()
	<-t.done
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
