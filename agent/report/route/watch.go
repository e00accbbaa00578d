package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

const (
	// watchBuffer is small on purpose: that something has changed is all that is read of it, and the kernel drops what has no room.
	watchBuffer = 16 << 10
	// entriesEvery is how often proxy entries are listed: no event tells of them.
	entriesEvery = 4 * time.Second
	// maxEvents is how many are read at once. The buffer has room for fewer.
	maxEvents = 256
)

// Watch returns a channel that has a value when what decides where packets go has changed since the last one was taken: routes, rules,
// addresses, forwarding and proxies. Nothing is read while nobody takes it, so that a flood of changes costs no more than one.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	conn, err := socket.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "netlink", nil)
	if err != nil {
		return nil, fmt.Errorf("opening a watch of routes: %w", err)
	}
	_ = conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUF, watchBuffer)
	mask := uint32(0)
	for _, group := range []int{
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	} {
		mask |= 1 << (group - 1)
	}
	if err := conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: mask}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribing to routes: %w", err)
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed) // ctx has ended, or the kernel says nothing any more
		context.AfterFunc(ctx, func() { conn.Close() })
		entries, _ := listEntries()
		for ctx.Err() == nil {
			_ = conn.SetReadDeadline(time.Now().Add(entriesEvery))
			err := drain(conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				now, err := listEntries()
				if err != nil || maps.Equal(entries, now) {
					continue
				}
				entries = now
			} else if err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return changed, nil
}

// drain waits for events and drops all that are there: the receive buffer has few.
func drain(conn *socket.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	var beginning [unix.SizeofNlMsghdr]byte
	err = raw.Read(func(fd uintptr) (done bool) {
		for range maxEvents {
			_, _, err := unix.Recvfrom(int(fd), beginning[:], unix.MSG_DONTWAIT)
			switch {
			case err == nil, errors.Is(err, unix.ENOBUFS):
				done = true
			case errors.Is(err, unix.EAGAIN):
				return done
			case !errors.Is(err, unix.EINTR):
				failed = err
				return true
			}
		}
		return true
	})
	return errors.Join(err, failed)
}
