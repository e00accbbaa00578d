package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Netns is a network namespace with a name under /run/netns.
type Netns struct {
	// Name is the file name under /run/netns.
	Name string

	fd netns.NsHandle
	nl *netlink.Handle

	once sync.Once
}

// makeNetns makes a named netns with lo up.
func makeNetns(name string) (*Netns, error) {
	made := make(chan error, 1)
	// NewNamed moves its thread into the new netns. The goroutine never unlocks the
	// thread, so the thread ends with it and nobody else runs there by mistake.
	go func() {
		runtime.LockOSThread()
		fd, err := netns.NewNamed(name)
		if err == nil {
			err = fd.Close()
		}
		made <- err
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make netns %s: %w", name, err)
	}
	n, err := openNetns(name)
	if err != nil {
		return nil, errors.Join(err, netns.DeleteNamed(name))
	}
	if err := n.up("lo"); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// openNetns opens a netns that exists.
func openNetns(name string) (*Netns, error) {
	fd, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("open netns %s: %w", name, err)
	}
	nl, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		_ = fd.Close()
		return nil, fmt.Errorf("open netlink in netns %s: %w", name, err)
	}
	return &Netns{Name: name, fd: fd, nl: nl}, nil
}

// Exec runs f on a thread that is in the netns. Goroutines that f starts are not in
// it; sockets that f opens stay in it for good.
func (n *Netns) Exec(f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("get current netns: %w", err)
	}
	defer home.Close()
	if err := netns.Set(n.fd); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter netns %s: %w", n.Name, err)
	}
	// A thread that cannot go home stays locked and dies with its goroutine.
	defer func() {
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// Netlink is a route netlink handle that works inside the netns.
func (n *Netns) Netlink() *netlink.Handle { return n.nl }

// Cookie is the SO_NETNS_COOKIE of the netns, unique for a boot.
func (n *Netns) Cookie() (uint64, error) {
	var cookie uint64
	err := n.Exec(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read netns cookie of %s: %w", n.Name, err)
	}
	return cookie, nil
}

// Inode is the number in "net:[4026532281]". The kernel gives it out again at once
// when the netns is gone.
func (n *Netns) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(n.fd), &st); err != nil {
		return 0, fmt.Errorf("stat netns %s: %w", n.Name, err)
	}
	return st.Ino, nil
}

// Sysctl sets a value below /proc/sys/net of this netns, for example
// ("ipv4/ip_forward", "1").
func (n *Netns) Sysctl(path, value string) error {
	return n.Exec(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0o644); err != nil {
			return fmt.Errorf("set sysctl in netns %s: %w", n.Name, err)
		}
		return nil
	})
}

// sysctls sets several values; each element is a path and a value.
func (n *Netns) sysctls(settings ...[2]string) error {
	for _, s := range settings {
		if err := n.Sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// Ifindex is the index of a device in the netns.
func (n *Netns) Ifindex(device string) (int, error) {
	link, err := n.nl.LinkByName(device)
	if err != nil {
		return 0, fmt.Errorf("find %s in netns %s: %w", device, n.Name, err)
	}
	return link.Attrs().Index, nil
}

// MAC is the hardware address of a device in the netns.
func (n *Netns) MAC(device string) (net.HardwareAddr, error) {
	link, err := n.nl.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find %s in netns %s: %w", device, n.Name, err)
	}
	return link.Attrs().HardwareAddr, nil
}

func (n *Netns) up(device string) error {
	link, err := n.nl.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s in netns %s: %w", device, n.Name, err)
	}
	if err := n.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up in netns %s: %w", device, n.Name, err)
	}
	return nil
}

func (n *Netns) down(device string) error {
	link, err := n.nl.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s in netns %s: %w", device, n.Name, err)
	}
	if err := n.nl.LinkSetDown(link); err != nil {
		return fmt.Errorf("set %s down in netns %s: %w", device, n.Name, err)
	}
	return nil
}

// dump repeats a listing that a change has interrupted.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for range 20 {
		if all, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return list()
}

// removeDevices deletes every device that can be deleted. One that vanishes
// meanwhile, with the other end of its veth pair, is as good as deleted.
func (n *Netns) removeDevices() {
	links, err := dump(n.nl.LinkList)
	if err != nil {
		return
	}
	for _, link := range links {
		if link.Attrs().Name != "lo" {
			_ = n.nl.LinkDel(link)
		}
	}
}

// close removes the name and lets go of the netns. It may be called more than once.
func (n *Netns) close() error {
	var err error
	n.once.Do(func() {
		err = netns.DeleteNamed(n.Name)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		n.release()
	})
	if err != nil {
		return fmt.Errorf("delete netns %s: %w", n.Name, err)
	}
	return nil
}

// release lets go of the netns and leaves its name.
func (n *Netns) release() {
	n.nl.Close()
	_ = n.fd.Close()
}
