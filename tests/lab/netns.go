package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
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

	lab  *Lab
	fd   netns.NsHandle
	nl   *netlink.Handle
	once sync.Once
	// thread is what keeps the netns after park, 0 before; it ends with leave.
	thread int
	leave  func()
}

// makeNetns makes a named netns with lo up.
func makeNetns(name string) (*Netns, error) {
	if err := visit(func() error {
		fd, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return fd.Close()
	}); err != nil {
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
		return nil, errors.Join(fmt.Errorf("open netlink in netns %s: %w", name, err), fd.Close())
	}
	return &Netns{Name: name, fd: fd, nl: nl}, nil
}

// visit runs f, which may move its thread into another netns, and moves the thread back. A thread that
// cannot return stays locked and ends with its goroutine.
func visit(f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("get current netns: %w", err)
	}
	defer func() {
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		_ = home.Close()
	}()
	return f()
}

// Exec runs f on a thread in the netns. Goroutines that f starts are not in it; sockets that f opens
// stay in it.
func (n *Netns) Exec(f func() error) error {
	if err := n.with(func(fd netns.NsHandle) error { return ExecIn(fd, f) }); err != nil {
		return fmt.Errorf("in netns %s: %w", n.Name, err)
	}
	return nil
}

// with runs f with a descriptor of the netns.
func (n *Netns) with(f func(fd netns.NsHandle) error) error {
	if n.thread == 0 {
		return f(n.fd)
	}
	fd, err := netns.GetFromThread(os.Getpid(), n.thread)
	if err != nil {
		return err
	}
	defer fd.Close()
	return f(fd)
}

// park replaces the name and the descriptor by a thread, so that nothing on the machine leads to the netns, but for moments.
func (n *Netns) park() error {
	inside, done := make(chan error), make(chan struct{})
	thread := 0
	go func() {
		runtime.LockOSThread() // and ends the thread with this goroutine
		thread = unix.Gettid()
		inside <- netns.Set(n.fd)
		<-done
	}()
	if err := <-inside; err != nil {
		close(done)
		return fmt.Errorf("park in netns %s: %w", n.Name, err)
	}
	n.thread, n.leave = thread, func() { close(done) }
	return n.Conceal()
}

// ExecIn is [Netns.Exec] in the netns of a descriptor.
func ExecIn(fd netns.NsHandle, f func() error) error {
	return visit(func() error {
		if err := netns.Set(fd); err != nil {
			return fmt.Errorf("enter netns: %w", err)
		}
		return f()
	})
}

// Start starts a command inside the netns.
func (n *Netns) Start(cmd *exec.Cmd) error { return n.Exec(cmd.Start) }

// Path is the file that opens the netns.
func (n *Netns) Path() string { return netnsDir + "/" + n.Name }

// Netlink is a route netlink handle that works inside the netns.
func (n *Netns) Netlink() *netlink.Handle { return n.nl }

// Cookie is the SO_NETNS_COOKIE of the netns, unique for a boot.
func (n *Netns) Cookie() (cookie uint64, err error) {
	err = n.Exec(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	return cookie, err
}

// Inode is the number in "net:[4026532281]". The kernel reuses it at once when the netns is gone.
func (n *Netns) Inode() (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(n.fd), &st)
	return st.Ino, err
}

// Sysctl sets values below /proc/sys/net of this netns: pairs of a path and a value, for
// example ("ipv4/ip_forward", "1").
func (n *Netns) Sysctl(pairs ...string) error {
	return n.Exec(func() error {
		for i := 0; i < len(pairs); i += 2 {
			if err := os.WriteFile(filepath.Join("/proc/sys/net", pairs[i]), []byte(pairs[i+1]), 0o644); err != nil {
				return fmt.Errorf("set sysctl in netns %s: %w", n.Name, err)
			}
		}
		return nil
	})
}

func (n *Netns) link(device string) (netlink.Link, error) {
	link, err := n.nl.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find %s in netns %s: %w", device, n.Name, err)
	}
	return link, nil
}

// change does something to a device; what is for errors.
func (n *Netns) change(device, what string, f func(netlink.Link) error) error {
	link, err := n.link(device)
	if err != nil {
		return err
	}
	if err := f(link); err != nil {
		return fmt.Errorf("%s: %s in netns %s: %w", what, device, n.Name, err)
	}
	return nil
}

func (n *Netns) up(device string) error   { return n.change(device, "set up", n.nl.LinkSetUp) }
func (n *Netns) down(device string) error { return n.change(device, "set down", n.nl.LinkSetDown) }

// Ifindex is the index of a device in the netns.
func (n *Netns) Ifindex(device string) (int, error) {
	link, err := n.link(device)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// MAC is the hardware address of a device in the netns.
func (n *Netns) MAC(device string) (net.HardwareAddr, error) {
	link, err := n.link(device)
	if err != nil {
		return nil, err
	}
	if mac := link.Attrs().HardwareAddr; len(mac) > 0 {
		return mac, nil
	}
	return make(net.HardwareAddr, 6), nil // that of netkit in L3 mode
}

// addrs lists the addresses of a device.
func (n *Netns) addrs(device string) ([]netlink.Addr, error) {
	link, err := n.link(device)
	if err != nil {
		return nil, err
	}
	list, err := Dump(func() ([]netlink.Addr, error) { return n.nl.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s in netns %s: %w", device, n.Name, err)
	}
	return list, nil
}

// Dump repeats a listing over netlink that a change has interrupted.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for range 20 {
		if all, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return list()
}

// removeDevices deletes every device that can be deleted. One may vanish meanwhile with the other end
// of its veth pair.
func (n *Netns) removeDevices() {
	links, err := Dump(n.nl.LinkList)
	if err != nil {
		return
	}
	for _, link := range links {
		if link.Attrs().Name != "lo" {
			_ = n.nl.LinkDel(link)
		}
	}
}

// close removes the name and releases the netns. It may be called more than once.
func (n *Netns) close() error { return n.end(n.release) }

// abandon is close for a netns that others may be using. The garbage collector closes the netlink handle when nobody has it any more: one
// that is closed works in the network of the whole machine.
func (n *Netns) abandon() error {
	return n.end(func() {
		runtime.SetFinalizer(n.nl, (*netlink.Handle).Close)
		_ = n.fd.Close()
	})
}

func (n *Netns) end(release func()) (err error) {
	n.once.Do(func() {
		if err = netns.DeleteNamed(n.Name); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		release()
	})
	return err
}

// RemoveName removes the name of the netns, which the lab keeps by a descriptor.
func (n *Netns) RemoveName() error { return netns.DeleteNamed(n.Name) }

// Elsewhere makes a netns as that of another machine: neither a name, a process nor a descriptor leads to it. It lives as long as its
// netlink socket, which the lab closes.
func (n *Node) Elsewhere() (nl *netlink.Handle, err error) {
	err = visit(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a netns: %w", err)
		}
		nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err == nil {
		n.lab.OnClose(func() error { nl.Close(); return nil })
	}
	return nl, err
}

// Conceal takes the netns its name and the lab's descriptor. It lives on with its processes and the netlink socket, and only these work there.
func (n *Netns) Conceal() error { return errors.Join(n.RemoveName(), n.fd.Close()) }

// release closes the descriptors and keeps the name.
func (n *Netns) release() {
	n.nl.Close()
	if n.thread != 0 {
		n.leave()
		return
	}
	_ = n.fd.Close()
}

// AddSandbox makes a netns that is joined to nothing, as a runtime makes it for CNI
// plugins to fill. The lab removes it, if [Node.DeleteSandbox] has not.
func (n *Node) AddSandbox(name string) (*Netns, error) { return n.lab.newNetns(name) }

// DeleteSandbox removes a netns of [Node.AddSandbox] with the devices in it.
func (n *Node) DeleteSandbox(sandbox *Netns) error {
	sandbox.removeDevices()
	n.lab.forget(sandbox)
	return sandbox.close()
}

// shareNames makes /run/netns a shared mount, as the first `ip netns add` on a machine does (iproute2,
// ip/ipnetns.c). If that came later, its mount would hide the lab's names.
func shareNames() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Another test process may be about to do the same.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // it is no mount yet
		err = errors.Join(unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""), share())
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", netnsDir, err)
	}
	return nil
}
