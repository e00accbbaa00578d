package bpf

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// Other goroutines must not run on the main thread: the runtime never ends it, so that a netns which it is in when its goroutine
// returns would stay.
func init() { runtime.LockOSThread() }

// isolate moves the calling test into a network namespace of its own, which ends with the
// test. Subtests run elsewhere and need their own.
func isolate(t testing.TB) {
	t.Helper()
	testneeds.Root(t)
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a netns: %v", err)
	}
	t.Cleanup(func() {
		defer func() { _ = before.Close() }()
		if err := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); err != nil {
			// The thread stays locked and ends with the test.
			t.Errorf("return to the first netns: %v", err)
			return
		}
		runtime.UnlockOSThread()
	})
	up(t, "lo")
}

// namespace is the netns of a pod.
type namespace struct{ file *os.File }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	testneeds.Root(t)
	n := new(namespace)
	if err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatalf("make a netns: %v", err)
	}
	t.Cleanup(func() { _ = n.file.Close() })
	return n
}

// do runs f in the namespace.
func (n *namespace) do(t testing.TB, f func() error) {
	t.Helper()
	if err := onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	}); err != nil {
		t.Fatal(err)
	}
}

// insideOf is a device in the netns of a file.
func insideOf(file *os.File, ifindex int) *Inside {
	return &Inside{Ifindex: ifindex, Do: func(f func(cookie uint64) error) error {
		return onThread(func() error {
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
			if err != nil {
				return err
			}
			return f(cookie)
		})
	}}
}

// onThread runs f on a thread that is never used again.
func onThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- f()
	}()
	return <-result
}

func up(t testing.TB, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

const (
	hostIP = "10.0.0.254"
	podIP  = "10.0.0.1"
)

// The emulated machine of tests/vm has devices that this one does not, and says so.
var (
	// byNetkit says that pods are joined by netkit instead of veth.
	byNetkit = os.Getenv("DUPIP_TEST_PAIR") == "netkit"
	// hasIPVlan says that tests inside pods also use ipvlan.
	hasIPVlan = os.Getenv("DUPIP_TEST_PAIR") == "ipvlan"
)

// pod is a namespace with an eth0 that has podMAC and podIP, and leads to an interface here or, through one, to a gateway.
type pod struct {
	*namespace
	ifindex int        // of the host side, or what stands for eth0
	socket  *os.File   // a packet socket on eth0
	peer    int        // ifindex of eth0
	gateway *namespace // who has hostIP, if not the test's netns
	early   bool       // observe it without a program
	kind    insideKind // of eth0, if its end is not here
}

func newPod(t testing.TB, hostName string) *pod {
	t.Helper()
	return newPodWith(t, hostName, netlink.NETKIT_POLICY_FORWARD)
}

// newPodWith is newPod with the policy for what the pod sends, which only netkit has.
func newPodWith(t testing.TB, hostName string, policy netlink.NetkitPolicy) *pod {
	t.Helper()
	p := &pod{namespace: newNamespace(t)}
	pair := netlink.Link(&netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: hostName},
		PeerName:         "eth0",
		PeerHardwareAddr: net.HardwareAddr(podMAC[:]),
		PeerNamespace:    netlink.NsFd(p.file.Fd()),
	})
	if byNetkit {
		netkit := &netlink.Netkit{LinkAttrs: netlink.LinkAttrs{Name: hostName}, PeerPolicy: policy}
		netkit.SetPeerAttrs(&netlink.LinkAttrs{Name: "eth0", HardwareAddr: net.HardwareAddr(podMAC[:]), Namespace: netlink.NsFd(p.file.Fd())})
		pair = netkit
	}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatalf("add %s: %v", pair.Type(), err)
	}
	host := up(t, hostName)
	p.ifindex = host.Attrs().Index
	if err := addAddress(host, hostIP); err != nil {
		t.Fatal(err)
	}
	p.setUp(t, host.Attrs().HardwareAddr)
	return p
}

// setUp gives eth0 its address, and opens the socket.
func (p *pod) setUp(t testing.TB, host net.HardwareAddr) {
	t.Helper()
	p.do(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(eth0); err != nil {
			return err
		}
		p.peer = eth0.Attrs().Index
		if err := addAddress(eth0, podIP); err != nil {
			return err
		}
		// No neighbour discovery on the side: tests count packets.
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: p.peer, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP(hostIP), HardwareAddr: host,
		})
	})
	p.open(t)
}

// open opens the socket.
func (p *pod) open(t testing.TB) {
	t.Helper()
	p.do(t, func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(socket), "packet socket")
		t.Cleanup(func() { _ = file.Close() })
		p.socket = file
		return unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: p.peer})
	})
}

// attach attaches the observer to what leads to the pod.
func (p *pod) attach(t *testing.T, o *Observer, generation uint32) *Attachment {
	t.Helper()
	opts := p.options(generation)
	if opts.Early = p.early; opts.Early {
		if err := o.OpenEarly(); err != nil {
			t.Fatal(err)
		}
	}
	a, err := o.Attach(p.ifindex, opts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p *pod) options(generation uint32) AttachOptions {
	opts := AttachOptions{Generation: generation, CreateQdisc: true, Netkit: byNetkit}
	if p.gateway != nil {
		opts.Inside = insideOf(p.file, p.peer)
	}
	return opts
}

// listen opens a socket of the address that the pod sends to.
func (p *pod) listen(t *testing.T) *net.UDPConn {
	t.Helper()
	var listener *net.UDPConn
	open := func() (err error) {
		listener, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(hostIP)})
		return err
	}
	if p.gateway != nil {
		p.gateway.do(t, open)
	} else if err := open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// dial opens a socket of the pod to where another listens.
func (p *pod) dial(t *testing.T, listener *net.UDPConn) net.Conn {
	t.Helper()
	var sender net.Conn
	p.do(t, func() (err error) {
		sender, err = net.Dial("udp4", listener.LocalAddr().String())
		return err
	})
	t.Cleanup(func() { _ = sender.Close() })
	return sender
}

func addAddress(link netlink.Link, ip string) error {
	address, err := netlink.ParseAddr(ip + "/24")
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, address)
}

// send sends a frame as it is from the pod's eth0.
func (p *pod) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := p.socket.Write(frame); err != nil && (!p.kind.routes || !errors.Is(err, unix.ENOBUFS)) {
		t.Fatalf("send %d bytes: %v", len(frame), err)
	}
}

// poll calls done until it returns true, for at most a minute.
func poll(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("timeout after a minute")
		}
	}
}
