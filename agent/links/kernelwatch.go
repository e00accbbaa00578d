package links

import (
	"context"
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
