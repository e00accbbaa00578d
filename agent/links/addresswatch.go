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
	// addressBuffer is the receive buffer of the address watch in bytes; the kernel doubles
	// it. Room for the events of a few thousand pods that start at once, and for what a
	// few pods can make of them within a pause.
	addressBuffer = 4 << 20
	// wakeRate and wakeBurst bound how often a second events are read. One that comes
	// alone is read at once; a flood is read in large portions, 20 ms apart.
	wakeRate  = 50
	wakeBurst = 50
	// maxPortion is how many batches are read before they are passed on.
	maxPortion = 256
)

// addressWatch receives every change of an address in our own netns and in every
// netns that has an id in ours, which each veth peer's has (NETLINK_LISTEN_ALL_NSID,
// net/netlink/af_netlink.c). So one socket reports an address that is added inside
// a running pod, without a descriptor of any pod's netns.
type addressWatch struct {
	conn *socket.Conn
	// changed is called once for each netns of a portion of events, and lost when the kernel
	// had no room for some: then any address of any netns may have changed before the call.
	changed func(nsid int)
	lost    func()

	batch   *addressBatch
	netns   map[int]bool // those of the present portion
	overrun bool
}

// openAddressWatch subscribes to changes of addresses.
func openAddressWatch(buffer int) (*addressWatch, error) {
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
	groups := uint32(1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1))
	if err := conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribing to addresses: %w", err)
	}
	return &addressWatch{conn: conn, batch: newAddressBatch(), netns: make(map[int]bool)}, nil
}

// run watches until ctx ends, or returns the error that ended it, and closes the socket.
func (w *addressWatch) run(ctx context.Context) error {
	defer w.conn.Close()
	raw, err := w.conn.SyscallConn()
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for wakes := rate.NewLimiter(wakeRate, wakeBurst); err == nil && wakes.Wait(ctx) == nil; {
		var failed error
		err = raw.Read(func(fd uintptr) (done bool) {
			done, failed = w.readPortion(fd)
			return done
		})
		err = errors.Join(err, failed)
		for nsid := range w.netns {
			w.changed(nsid)
		}
		clear(w.netns)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("receiving address changes: %w", err)
	}
	return nil
}

// readPortion reads events until there are no more, or many. It is done when there were any.
func (w *addressWatch) readPortion(fd uintptr) (done bool, err error) {
	for range maxPortion {
		n, err := w.batch.receive(fd)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			w.overrun, done = true, true
		case errors.Is(err, unix.EAGAIN):
			// After an overrun the kernel drops events until the buffer was found empty:
			// only what is read after that makes up for them.
			if w.overrun {
				w.overrun = false
				w.lost()
			}
			return done, nil
		case err != nil:
			return true, err
		default:
			done = true
			for i := range n {
				if nsid, ok := w.batch.changed(i); ok {
					w.netns[nsid] = true
				}
			}
		}
	}
	return true, nil
}
