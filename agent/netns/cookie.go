package netns

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Cookie returns the identity of the calling thread's netns, which no other one has before the machine boots again: the kernel's
// cookie (SO_NETNS_COOKIE, net/core/sock.c), or before Linux 5.14, which brought that, a number made of two inodes.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("opening a socket for the netns cookie: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return cookieOfInodes()
	}
	if err != nil {
		return 0, fmt.Errorf("reading the netns cookie: %w", err)
	}
	return cookie, nil
}

// cookieOfInodes joins the inodes of the netns and of the kernel's own rtnetlink socket in it, which lives as long. The latter counts
// up with each socket, pipe and file in memory (get_next_ino, fs/inode.c), and begins again after 2^32 of them; the former tells
// apart those that live at one time. All processes find the same number, and JSON's readers keep it: it has 52 bits.
func cookieOfInodes() (uint64, error) {
	var self unix.Stat_t
	if err := unix.Stat(Self, &self); err != nil {
		return 0, fmt.Errorf("finding own netns: %w", err)
	}
	const path = "/proc/thread-self/net/netlink"
	file, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("finding the kernel's sockets in a netns: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// An address, the protocol (NETLINK_ROUTE is 0), the port (the kernel's is 0), and the inode last (netlink_seq_show,
		// net/netlink/af_netlink.c).
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[1] != "0" || fields[2] != "0" {
			continue
		}
		socket, err := strconv.ParseUint(fields[len(fields)-1], 10, 32)
		if err != nil || socket == 0 {
			return 0, fmt.Errorf("%s has no inode: %q", path, lines.Text())
		}
		return self.Ino&0xfffff<<32 | socket, nil
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("finding the kernel's sockets in a netns: %w", err)
	}
	return 0, fmt.Errorf("%s lists no rtnetlink socket of the kernel", path)
}

// CookieAt returns the cookie of the netns at path, which may be anything, as for [Open].
func CookieAt(path string) (uint64, error) {
	file, err := Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var cookie uint64
	err = Do(file, func() (err error) {
		cookie, err = Cookie()
		return err
	})
	return cookie, err
}
