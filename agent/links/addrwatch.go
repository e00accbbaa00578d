package links

import (
	"context"
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"
)

// ownNetns stands for "our own netns" where the kernel gives no netns id.
const ownNetns = -1

// addrBuffer is the receive buffer of the address watch in bytes: room for the
// events of a few thousand pods that start at once.
const addrBuffer = 4 << 20

// watchAddresses reports every change of an address in our own netns and in every
// netns that has an id in ours, which each veth peer's has (NETLINK_LISTEN_ALL_NSID,
// net/netlink/af_netlink.c). One socket so hears of an address that is added inside
// a running pod, without a descriptor on any pod's netns. It returns when ctx ends,
// or with the error after which events may be missing.
//
// The socket is subscribed when ready is called.
func watchAddresses(ctx context.Context, ready func(), changed func(nsid int)) error {
	conn, err := openAddressWatch()
	if err != nil {
		return err
	}
	defer conn.Close()
	// Best effort: without CAP_NET_ADMIN the default size stays.
	_ = conn.SetsockoptInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, addrBuffer)
	groups := uint32(1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1))
	if err := conn.Bind(&unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("subscribing to addresses: %w", err)
	}
	ready()
	buf := make([]byte, 64<<10)
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, from, err := conn.Recvmsg(ctx, buf, oob, 0)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("receiving address changes: %w", err)
		}
		// Only the kernel's word counts: any process may send to our port.
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		if !hasAddressChange(buf[:n]) {
			continue
		}
		changed(senderNetns(oob[:oobn]))
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

// hasAddressChange says whether a datagram holds an RTM_NEWADDR or RTM_DELADDR.
func hasAddressChange(datagram []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Type == unix.RTM_NEWADDR || m.Header.Type == unix.RTM_DELADDR {
			return true
		}
	}
	return false
}

// senderNetns reads the netns id from the control message; the kernel leaves it
// out for our own netns.
func senderNetns(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return ownNetns
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(m.Data)))
		}
	}
	return ownNetns
}
