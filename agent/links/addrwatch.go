package links

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// ownNetns stands for "our own netns" where the kernel gives no netns id.
const ownNetns = -1

const (
	// addrBuffer is the receive buffer of the address watch in bytes; the kernel doubles
	// it. Room for the events of a few thousand pods that start at once, and for what a
	// few pods can make of them within a pause.
	addrBuffer = 4 << 20
	// wakeRate and wakeBurst bound how often a second events are read. One that comes
	// alone is read at once; a flood is read in large portions, 20 ms apart.
	wakeRate  = 50
	wakeBurst = 50
	// maxPortion is how many batches are read before what they told is handed on.
	maxPortion = 256
	// lostPause is the least time between two reports that events were lost, each of
	// which means a look into every netns.
	lostPause = time.Second
)

// addressWatcher hears of every change of an address in our own netns and in every
// netns that has an id in ours, which each veth peer's has (NETLINK_LISTEN_ALL_NSID,
// net/netlink/af_netlink.c). One socket so hears of an address that is added inside
// a running pod, without a descriptor on any pod's netns.
type addressWatcher struct {
	// ready is called when the socket is subscribed, changed once for each netns of a
	// portion of events, and lost when the kernel had no room for some: then any
	// address of any netns may have changed before the call.
	ready   func()
	changed func(nsid int)
	lost    func()
	// buffer is the receive buffer in bytes, by default addrBuffer.
	buffer int

	batch    *addressBatch
	netns    map[int]bool // those of the present portion
	drained  bool
	overrun  bool
	nextLost time.Time
}

// run watches until ctx ends, or returns the error after which nothing is heard.
func (w *addressWatcher) run(ctx context.Context) error {
	conn, err := openAddressWatch()
	if err != nil {
		return err
	}
	defer conn.Close()
	// Best effort: without CAP_NET_ADMIN the default size stays.
	_ = conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, cmp.Or(w.buffer, addrBuffer))
	if err := bindAddressWatch(conn); err != nil {
		return err
	}
	w.ready()
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("receiving address changes: %w", err)
	}
	w.batch, w.netns = newAddressBatch(), make(map[int]bool)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	wakes := rate.NewLimiter(wakeRate, wakeBurst)
	var failed error
	read := func(fd uintptr) (done bool) {
		done, failed = w.readPortion(fd)
		return done
	}
	for {
		_ = conn.SetReadDeadline(w.deadline())
		if ctx.Err() != nil {
			return nil // perhaps the deadline that said so was just taken away
		}
		err := raw.Read(read)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil || failed != nil:
			return fmt.Errorf("receiving address changes: %w", errors.Join(err, failed))
		}
		w.report(time.Now())
		if wakes.Wait(ctx) != nil {
			return nil
		}
	}
}

// readPortion reads events until there are no more, or many. It is done when there were any.
func (w *addressWatcher) readPortion(fd uintptr) (done bool, err error) {
	w.drained = false
	for range maxPortion {
		n, err := w.batch.receive(fd)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			w.drained = true
			return done, nil
		case errors.Is(err, unix.ENOBUFS):
			w.overrun, done = true, true
			continue
		case err != nil:
			return true, err
		}
		done = true
		for i := range n {
			if nsid, ok := w.batch.changed(i); ok {
				w.netns[nsid] = true
			}
		}
	}
	return true, nil
}

// deadline returns until when to wait for events, zero for ever. While there are some to
// read it must not keep us from that.
func (w *addressWatcher) deadline() time.Time {
	if w.overrun && w.drained {
		return w.nextLost
	}
	return time.Time{}
}

// report hands on what was read. After an overrun the kernel drops events until the
// buffer was found empty: only what is looked at afterwards makes up for those.
func (w *addressWatcher) report(now time.Time) {
	for nsid := range w.netns {
		w.changed(nsid)
	}
	clear(w.netns)
	if w.overrun && w.drained && !now.Before(w.nextLost) {
		w.overrun, w.nextLost = false, now.Add(lostPause)
		w.lost()
	}
}

// openAddressWatch opens the socket, not subscribed to anything yet.
func openAddressWatch() (*socket.Conn, error) {
	conn, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "netlink", nil)
	if err != nil {
		return nil, fmt.Errorf("opening the address watch: %w", err)
	}
	if err := conn.SetsockoptInt(unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		conn.Close()
		return nil, fmt.Errorf("watching addresses of all netns (needs CAP_NET_BROADCAST): %w", err)
	}
	return conn, nil
}

// bindAddressWatch subscribes to the changes of addresses.
func bindAddressWatch(conn *socket.Conn) error {
	groups := uint32(1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1))
	if err := conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("subscribing to addresses: %w", err)
	}
	return nil
}
