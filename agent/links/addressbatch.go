package links

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many datagrams one system call receives at most.
const batchSize = 64

// nsidMessage is the size of an RTM_DELNSID: struct nlmsghdr, struct rtgenmsg, and the attribute NETNSA_NSID
// (rtnl_net_fill, net/core/net_namespace.c). Messages about addresses are longer.
const nsidMessage = unix.SizeofNlMsghdr + 4 + unix.SizeofNlAttr + 4

// addressBatch receives many datagrams with one system call and allocates nothing: a pod can
// change its addresses 100,000 times a second.
type addressBatch struct {
	headers [batchSize]multiHeader
	vectors [batchSize]unix.Iovec
	senders [batchSize]unix.RawSockaddrNetlink
	// Each datagram has one message, of which only the beginning is read.
	data    [batchSize][nsidMessage]byte
	control [batchSize][controlSize]byte
}

// multiHeader is struct mmsghdr, see recvmmsg(2).
type multiHeader struct {
	header unix.Msghdr
	size   uint32
}

// controlSize is twice CMSG_SPACE(4): for the netns id, and for a message that later kernels may add.
const controlSize = 2 * (unix.SizeofCmsghdr + 8)

func newAddressBatch() *addressBatch {
	b := new(addressBatch)
	for i := range b.headers {
		b.vectors[i].Base = &b.data[i][0]
		b.vectors[i].SetLen(len(b.data[i]))
		h := &b.headers[i].header
		h.Iov = &b.vectors[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.senders[i]))
		h.Control = &b.control[i][0]
	}
	return b
}

// receive returns how many datagrams it received. It does not wait: without any the error is
// [unix.EAGAIN].
func (b *addressBatch) receive(fd uintptr) (int, error) {
	for i := range b.headers {
		h := &b.headers[i].header // the kernel overwrites both lengths
		h.Namelen = unix.SizeofSockaddrNetlink
		h.SetControllen(controlSize)
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&b.headers)), batchSize, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// changed returns the id of the netns in which the i-th datagram reports a changed address, and
// false if it reports none. Link-local addresses do not count: every device has one.
func (b *addressBatch) changed(i int) (nsid int, ok bool) {
	// Only the kernel's messages count: any process may send to our port.
	if b.senders[i].Pid != 0 || b.headers[i].size < uint32(len(b.data[i])) {
		return 0, false
	}
	if m := b.data[i][unix.SizeofNlMsghdr:]; m[0] == unix.AF_INET6 && m[3] == unix.RT_SCOPE_LINK { // struct ifaddrmsg
		return 0, false
	}
	switch binary.NativeEndian.Uint16(b.data[i][4:]) { // struct nlmsghdr
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return senderNetns(b.control[i][:min(controlSize, int(b.headers[i].header.Controllen))]), true
	}
	return 0, false
}

// ended returns the id that a netns of ours had, if the i-th datagram reports that it ended.
func (b *addressBatch) ended(i int) (nsid int, ok bool) {
	if b.senders[i].Pid != 0 || b.headers[i].size < nsidMessage || binary.NativeEndian.Uint16(b.data[i][4:]) != unix.RTM_DELNSID {
		return 0, false
	}
	if senderNetns(b.control[i][:min(controlSize, int(b.headers[i].header.Controllen))]) != ownNetns {
		return 0, false // an id in another netns
	}
	return int(int32(binary.NativeEndian.Uint32(b.data[i][nsidMessage-4:]))), true
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
