package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Cookie returns the identity of the calling thread's netns, which no other one has before the machine boots again: the kernel's
// cookie (SO_NETNS_COOKIE, net/core/sock.c), or the number of its loopback device before Linux 5.14, which brought cookies.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("opening a socket for the netns cookie: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return loopbackID(fd, OpenSysfs)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the cookie of a netns: %w", err)
	}
	return cookie, nil
}

// ContainerCookie is Cookie before Linux 5.14 for a process in a container that may not mount: what is mounted at /sys must be of its
// netns, as runtimes mount it.
func ContainerCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("opening a socket for the netns cookie: %w", err)
	}
	defer unix.Close(fd)
	return loopbackID(fd, func() (*os.File, error) { return os.Open("/sys") })
}

// loopbackID returns the number that the loopback device of a socket's netns has in a sysfs of that netns. Each netns has one such device,
// which lives as long and has index 1 (LOOPBACK_IFINDEX, include/net/flow.h). The kernel counts what it adds to sysfs in 64 bits
// (__kernfs_new_node, fs/kernfs/dir.c), so that all processes find one number, and no later netns has it.
func loopbackID(socket int, open func() (sysfs *os.File, err error)) (uint64, error) {
	sysfs, err := open()
	if err != nil {
		return 0, fmt.Errorf("identifying a netns: %w", err)
	}
	defer sysfs.Close()
	// A pod may rename it.
	device, err := unix.NewIfreq("?")
	if err != nil {
		return 0, err
	}
	device.SetUint32(loopback)
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFNAME, device); err != nil {
		return 0, fmt.Errorf("finding the name of the loopback device: %w", err)
	}
	folder, err := unix.Openat(int(sysfs.Fd()), "devices/virtual/net/"+device.Name(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("finding the loopback device in sysfs: %w", err)
	}
	defer unix.Close(folder)
	index, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/ifindex", folder))
	if err != nil {
		return 0, fmt.Errorf("reading the index of the loopback device: %w", err)
	}
	if string(index) != fmt.Sprintln(loopback) {
		return 0, fmt.Errorf("the loopback device is %s no more: that has index %q", device.Name(), index)
	}
	var found unix.Stat_t
	err = unix.Fstat(folder, &found)
	return found.Ino, err
}

// loopback is the index of lo in every netns.
const loopback = 1

// OpenSysfs opens a sysfs of the calling thread's netns: what is mounted at /sys may be that of another one.
func OpenSysfs() (*os.File, error) {
	filesystem, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer unix.Close(filesystem)
		err = unix.FsconfigCreate(filesystem)
	}
	if err != nil {
		return nil, fmt.Errorf("making a sysfs: %w", err)
	}
	mount, err := unix.Fsmount(filesystem, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("mounting a sysfs: %w", err)
	}
	return os.NewFile(uintptr(mount), "sysfs"), nil
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
