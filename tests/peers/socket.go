package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// socket receives the ARP and neighbour discovery of all devices of a netns, those that come
// later too, without outer VLAN tags.
type socket struct {
	file *os.File
}

// neighbourFilter accepts ARP, and IPv6 packets that are ICMPv6 neighbour solicitations and
// advertisements. The kernel has taken the outer VLAN tag out.
var neighbourFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherARP, SkipTrue: 6},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherIPv6, SkipTrue: 6},
	bpf.LoadAbsolute{Off: etherHeader + 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 58, SkipTrue: 4},
	bpf.LoadAbsolute{Off: etherHeader + ipv6Header, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 135, SkipTrue: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 136, SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

// listen opens a socket in the netns of a node.
func listen(n *lab.Node) (*socket, error) {
	raw, err := bpf.Assemble(neighbourFilter)
	if err != nil {
		return nil, err
	}
	program := unix.SockFprog{Len: uint16(len(raw)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	var fd int
	err = n.Exec(func() (err error) {
		// Protocol 0 receives nothing until the filter is there. ETH_P_ARP would miss what a
		// bridge takes before the stack.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open packet socket on %s: %w", n.ShortName(), err)
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all}),
	); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up packet socket on %s: %w", n.ShortName(), err)
	}
	return &socket{os.NewFile(uintptr(fd), "packets of "+n.ShortName())}, nil
}

// received is a frame that came in.
type received struct {
	frame   []byte
	ifindex int
	vlan    uint16
	// own frames were sent by this side.
	own bool
}

// receive blocks for the next frame, until the socket is closed.
func (s *socket) receive(buf []byte) (received, error) {
	var r received
	raw, err := s.file.SyscallConn()
	if err != nil {
		return r, err
	}
	oob := make([]byte, unix.CmsgSpace(20))
	var size, oobn int
	var from unix.Sockaddr
	var recvErr error
	err = raw.Read(func(fd uintptr) bool {
		size, oobn, _, from, recvErr = unix.Recvmsg(int(fd), buf, oob, 0)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	if err := errors.Join(err, recvErr); err != nil {
		return r, err
	}
	r.frame, r.vlan = buf[:size], vlanOf(oob[:oobn])
	if ll, ok := from.(*unix.SockaddrLinklayer); ok {
		r.ifindex, r.own = ll.Ifindex, ll.Pkttype == unix.PACKET_OUTGOING
	}
	return r, nil
}

// deviceName is the name of a device in the socket's netns, which is cheap to ask for each
// frame: an index may be another device's by now.
func (s *socket) deviceName(index int) (string, error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return "", err
	}
	request, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	request.SetUint32(uint32(index))
	var askErr error
	err = raw.Control(func(fd uintptr) { askErr = unix.IoctlIfreq(int(fd), unix.SIOCGIFNAME, request) })
	return request.Name(), errors.Join(err, askErr)
}

// vlanOf reads the tag from the tpacket_auxdata of a frame (linux/if_packet.h); 0 is none.
func vlanOf(oob []byte) uint16 {
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
