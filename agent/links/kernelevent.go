package links

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nsidMessage is the size of an RTM_DELNSID: struct nlmsghdr, struct rtgenmsg, and the attribute NETNSA_NSID
// (rtnl_net_fill, net/core/net_namespace.c). Other messages are at least as long: those about routes have a struct rtmsg, of 12 bytes.
const nsidMessage = unix.SizeofNlMsghdr + 4 + unix.SizeofNlAttr + 4

// controlSize is twice CMSG_SPACE(4): for the netns id, and for a message that later kernels may add.
const controlSize = 2 * (unix.SizeofCmsghdr + 8)

// kernelEvent is a datagram of the kernel with one message, of which only the beginning is read.
type kernelEvent struct {
	data    [nsidMessage]byte
	size    int
	control [controlSize]byte
	netns   int // the id of the netns that it is about
}

// receive receives one from the kernel; what processes send to our port has size 0. It does not wait: without any the error is [unix.EAGAIN].
func (e *kernelEvent) receive(fd uintptr) error {
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

// requests returns what the watcher has to do because of the event.
func (e *kernelEvent) requests() []any {
	if e.size < len(e.data) {
		return nil
	}
	m := e.data[unix.SizeofNlMsghdr:]
	switch kind := binary.NativeEndian.Uint16(e.data[4:]); kind { // struct nlmsghdr
	case unix.RTM_NEWADDR, unix.RTM_DELADDR: // struct ifaddrmsg
		if m[0] == unix.AF_INET6 && m[3] == unix.RT_SCOPE_LINK {
			return nil // every device has one
		}
		if e.netns == ownNetns && kind == unix.RTM_DELADDR {
			return []any{scanNetns(ownNetns), listRoutes{}} // no event tells of the IPv4 routes that go with it (fib_sync_down_addr)
		}
		return []any{scanNetns(e.netns)}
	case unix.RTM_DELNSID:
		if e.netns == ownNetns { // else it is an id in another netns
			return []any{netnsGone(int32(binary.NativeEndian.Uint32(m[8:])))}
		}
	case unix.RTM_NEWNSID:
		if e.netns != ownNetns { // as when a device moves from one netns to another
			return []any{findNamespaces{}}
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE: // struct rtmsg
		if m[1] == 0 { // the length of the destination: it is a default route
			return []any{listRoutes{}}
		}
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER: // struct tcmsg
		return []any{checkPrograms(int32(binary.NativeEndian.Uint32(m[4:])))}
	}
	return nil
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
