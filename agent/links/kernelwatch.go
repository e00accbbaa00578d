package links

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// ownNetns stands for "our own netns" where the kernel gives no netns id.
const ownNetns = -1

const (
	// watchBuffer is the receive buffer in bytes; the kernel doubles it. It has room for the
	// events of a few thousand pods that start at once.
	watchBuffer = 4 << 20
	// wakeRate and wakeBurst limit how often a second events are read: a single one at once, a
	// flood every 20 ms.
	wakeRate, wakeBurst = 50, 50
	// maxEvents is how many are read before they are passed on. A pod can cause 100,000 a second.
	maxEvents = 16384
)

// kernelWatch receives events of the kernel. It needs no descriptor of any pod's netns.
type kernelWatch struct {
	conn *socket.Conn
	what string
	// request gets the requests of all events, and scanEverything when the kernel dropped events: anything may have changed before the call.
	request func(any)

	event   kernelEvent
	pending map[any]bool // requests that were not passed on yet
	overrun bool
}

// watchAddresses watches every change of an address in our own netns and in every netns that has an id in ours, as that of each veth's
// peer has (NETLINK_LISTEN_ALL_NSID, net/netlink/af_netlink.c), and the ids that end with their netns.
func watchAddresses(buffer int, request func(any)) (*kernelWatch, error) {
	w, err := openKernelWatch("addresses", buffer, request, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_NSID)
	if err != nil {
		return nil, err
	}
	if err := w.conn.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		w.conn.Close()
		return nil, fmt.Errorf("watching addresses of all netns (needs CAP_NET_BROADCAST): %w", err)
	}
	return w, nil
}

// watchNode watches the routes of our own netns, and the qdiscs and filters if programs are attached to these.
func watchNode(buffer int, filters bool, request func(any)) (*kernelWatch, error) {
	groups := []int{unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}
	if filters {
		groups = append(groups, unix.RTNLGRP_TC)
	}
	return openKernelWatch("routes", buffer, request, groups...)
}

func openKernelWatch(what string, buffer int, request func(any), groups ...int) (*kernelWatch, error) {
	conn, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "netlink", nil)
	if err != nil {
		return nil, fmt.Errorf("opening a watch of %s: %w", what, err)
	}
	// Best effort: without CAP_NET_ADMIN the default size stays.
	_ = conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	mask := uint32(0)
	for _, group := range groups {
		mask |= 1 << (group - 1)
	}
	if err := conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: mask}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribing to %s: %w", what, err)
	}
	return &kernelWatch{conn: conn, what: what, request: request, pending: make(map[any]bool)}, nil
}

// run watches until ctx ends or a call fails, and closes the socket.
func (w *kernelWatch) run(ctx context.Context) error {
	defer w.conn.Close()
	raw, err := w.conn.SyscallConn()
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for wakes := rate.NewLimiter(wakeRate, wakeBurst); err == nil && wakes.Wait(ctx) == nil; {
		var failed error
		err = raw.Read(func(fd uintptr) (done bool) {
			done, failed = w.read(fd)
			return done
		})
		err = errors.Join(err, failed)
		for request := range w.pending {
			w.request(request)
		}
		clear(w.pending)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("receiving changes of %s: %w", w.what, err)
	}
	return nil
}

// read reads events until there are no more, at most maxEvents. It is done when there were any.
func (w *kernelWatch) read(fd uintptr) (done bool, err error) {
	for range maxEvents {
		switch err := w.event.receive(fd); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			w.overrun, done = true, true
		case errors.Is(err, unix.EAGAIN):
			// After an overrun the kernel drops events until the buffer was empty once: only a
			// scan after that finds all changes.
			if w.overrun {
				w.overrun = false
				w.request(scanEverything{})
			}
			return done, nil
		case err != nil:
			return true, err
		default:
			done = true
			for _, request := range w.event.requests() {
				w.pending[request] = true
			}
		}
	}
	return true, nil
}

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
