package links

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nsidMessage is the size of an RTM_DELNSID: struct nlmsghdr, struct rtgenmsg, and the attribute NETNSA_NSID
// (rtnl_net_fill, net/core/net_namespace.c). Messages about addresses are longer.
const nsidMessage = unix.SizeofNlMsghdr + 4 + unix.SizeofNlAttr + 4

// controlSize is twice CMSG_SPACE(4): for the netns id, and for a message that later kernels may add.
const controlSize = 2 * (unix.SizeofCmsghdr + 8)

// addressEvent is a datagram of the kernel with one message, of which only the beginning is read.
type addressEvent struct {
	data    [nsidMessage]byte
	size    int
	control [controlSize]byte
	netns   int // the id of the netns that it is about
}

// receive receives one from the kernel; what processes send to our port has size 0. It does not wait: without any the error is [unix.EAGAIN].
func (e *addressEvent) receive(fd uintptr) error {
	size, controlLength, _, from, err := unix.Recvmsg(int(fd), e.data[:], e.control[:], unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	e.size, e.netns = 0, senderNetns(e.control[:controlLength])
	if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
		e.size = size
	}
	return nil
}

// changed reports whether an address of the netns has changed. Link-local addresses do not count: every device has one.
func (e *addressEvent) changed() bool {
	if e.size < len(e.data) {
		return false
	}
	if m := e.data[unix.SizeofNlMsghdr:]; m[0] == unix.AF_INET6 && m[3] == unix.RT_SCOPE_LINK { // struct ifaddrmsg
		return false
	}
	kind := binary.NativeEndian.Uint16(e.data[4:]) // struct nlmsghdr
	return kind == unix.RTM_NEWADDR || kind == unix.RTM_DELADDR
}

// ended returns the id that a netns of ours had, if it ended.
func (e *addressEvent) ended() (nsid int, ok bool) {
	if e.size < len(e.data) || binary.NativeEndian.Uint16(e.data[4:]) != unix.RTM_DELNSID || e.netns != ownNetns {
		return 0, false // or an id in another netns
	}
	return int(int32(binary.NativeEndian.Uint32(e.data[nsidMessage-4:]))), true
}

// senderNetns reads the netns id from the control messages. The kernel omits it for our own netns.
func senderNetns(control []byte) int {
	for len(control) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if header.Level == unix.SOL_NETLINK && header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(data)))
		}
		control = rest
	}
	return ownNetns
}
