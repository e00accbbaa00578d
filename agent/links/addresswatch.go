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
	// addressBuffer is the receive buffer in bytes; the kernel doubles it. It has room for the
	// events of a few thousand pods that start at once.
	addressBuffer = 4 << 20
	// wakeRate and wakeBurst limit how often a second events are read: a single one at once, a
	// flood every 20 ms.
	wakeRate, wakeBurst = 50, 50
	// maxEvents is how many are read before they are passed on. A pod can cause 100,000 a second.
	maxEvents = 16384
)

// addressWatch receives every change of an address in our own netns and in every netns that
// has an id in ours, as that of each veth's peer has (NETLINK_LISTEN_ALL_NSID,
// net/netlink/af_netlink.c). It needs no descriptor of any pod's netns.
type addressWatch struct {
	conn *socket.Conn
	// request gets scanNetns for each netns with events, scanEverything when the kernel dropped events: any address of any
	// netns may have changed before the call; and netnsGone for each netns that has lost its id, which it does when it ends.
	request func(any)

	event   addressEvent
	netns   map[int]bool // those with events that were not passed on yet
	overrun bool
}

func openAddressWatch(buffer int, request func(any)) (*addressWatch, error) {
	conn, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "netlink", nil)
	if err != nil {
		return nil, fmt.Errorf("opening the address watch: %w", err)
	}
	if err := conn.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		conn.Close()
		return nil, fmt.Errorf("watching addresses of all netns (needs CAP_NET_BROADCAST): %w", err)
	}
	// Best effort: without CAP_NET_ADMIN the default size stays.
	_ = conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	groups := uint32(1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) | 1<<(unix.RTNLGRP_NSID-1))
	if err := conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribing to addresses: %w", err)
	}
	return &addressWatch{conn: conn, request: request, netns: make(map[int]bool)}, nil
}

// run watches until ctx ends or a call fails, and closes the socket.
func (w *addressWatch) run(ctx context.Context) error {
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
		for nsid := range w.netns {
			w.request(scanNetns(nsid))
		}
		clear(w.netns)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("receiving address changes: %w", err)
	}
	return nil
}

// read reads events until there are no more, at most maxEvents. It is done when there were any.
func (w *addressWatch) read(fd uintptr) (done bool, err error) {
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
			if w.event.changed() {
				w.netns[w.event.netns] = true
			} else if nsid, ok := w.event.ended(); ok {
				w.request(netnsGone(nsid))
			}
		}
	}
	return true, nil
}
