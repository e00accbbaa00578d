package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestPodsReachEachOther(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n1, n2 := l.Node(""), l.Node("")
	bridged := l.Pod(n1, "bridged", PodOptions{Addrs: []netip.Addr{n1.IPv4(5), n1.IPv6(5)}})
	neighbour := l.Pod(n1, "neighbour", PodOptions{Addrs: []netip.Addr{n1.IPv4(6), n1.IPv6(6)}})
	routed := l.Pod(n1, "routed", PodOptions{Style: Routed, Addrs: []netip.Addr{n1.RoutedIPv4(5), n1.RoutedIPv6(5)}})
	other := l.Pod(n1, "other", PodOptions{Style: Routed, Addrs: []netip.Addr{n1.RoutedIPv4(6), n1.RoutedIPv6(6)}})
	remote := l.Pod(n2, "remote", PodOptions{Addrs: []netip.Addr{n2.IPv4(5), n2.IPv6(5)}})
	for _, tt := range []struct{ from, to *Pod }{
		{bridged, neighbour},
		{routed, other},
		{other, routed},
		{routed, bridged},
		{bridged, remote},
		{routed, remote},
	} {
		for i, dst := range tt.to.Addrs() {
			if err := tt.from.Ping(dst); err != nil {
				t.Errorf("%s to %s, address %d: %v", tt.from.ShortName(), tt.to.ShortName(), i, err)
			}
		}
	}
	if err := n1.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if err := bridged.Ping(n2.IPv4(5)); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("ping through a disconnected uplink: %v, want %v", err, ErrNoAnswer)
	}
	if err := n1.Reconnect(); err != nil {
		t.Fatal(err)
	}
	if err := bridged.Ping(n2.IPv4(5)); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

// Nodes with IPv6 only reach each other, and have no IPv4 address but that of lo.
func TestIPv6Only(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	l.IPv6Only = true
	n1, n2 := l.Node(""), l.Node("")
	bridged := l.Pod(n1, "bridged", PodOptions{Addrs: []netip.Addr{n1.IPv6(5)}})
	routed := l.Pod(n2, "routed", PodOptions{Style: Routed, Addrs: []netip.Addr{n2.RoutedIPv6(5)}})
	l.Do(bridged.Ping(routed.Addrs()[0]), routed.Ping(bridged.Addrs()[0]), n1.Ping(n2.Address()))
	for _, n := range []*Netns{n1.Netns, n2.Netns, bridged.Netns, routed.Netns} {
		all, err := Dump(func() ([]netlink.Addr, error) { return n.Netlink().AddrList(nil, netlink.FAMILY_V4) })
		l.Do(err)
		for _, a := range all {
			if !a.IP.IsLoopback() {
				t.Errorf("%s has %v", n.Name, a)
			}
		}
	}
}

func TestPingNobody(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	p := l.Pod(n, "pod", PodOptions{Addrs: []netip.Addr{n.IPv4(5), n.IPv6(5)}})
	for _, dst := range []netip.Addr{n.IPv4(99), n.IPv6(99)} {
		if err := p.Ping(dst); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("ping %v: %v, want %v", dst, err, ErrNoAnswer)
		}
	}
}

// A silent pod sends nothing for two seconds after it came up, then answers a ping, which the same
// tap sees.
func TestSilentPods(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	for _, style := range []Style{Bridged, Routed} {
		for _, silent := range []bool{true, false} {
			t.Run(fmt.Sprintf("style=%d,silent=%t", style, silent), func(t *testing.T) {
				last := byte(10 + 2*int(style))
				if silent {
					last++
				}
				device := fmt.Sprintf("vt%d", last)
				// The tap has to be there before the pod's end comes up.
				o := PodOptions{Style: style, Silent: silent, HostInterface: device, Interface: "eth0", Bridge: Bridge, Addrs: []netip.Addr{n.IPv4(last), n.IPv6(last)}}
				p := &Pod{Node: n, Interface: "eth0", opts: o}
				var err error
				p.Netns, err = l.newNetns(device)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(p.plug(o), p.configure(o), p.hostSide(o)); err != nil {
					t.Fatal(err)
				}
				tap, err := n.Tap(device, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(p.start(o), p.routes(o)); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
					if silent && tap.Count() > 0 {
						t.Fatal("a silent pod sent a packet")
					}
				}
				if !silent && tap.Count() == 0 {
					t.Error("an ordinary pod did not announce itself")
				}
				for _, a := range o.Addrs {
					before := tap.Count()
					if err := n.Ping(a); err != nil {
						t.Error(err)
					}
					l.Eventually("the tap sees the answer", func() error {
						if tap.Count() == before {
							return fmt.Errorf("nothing came from %v", a)
						}
						return nil
					})
				}
			})
		}
	}
}

func TestGuestAnswers(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	p := l.Pod(n, "vm4", PodOptions{Style: Raw})
	q := l.Pod(n, "vm6", PodOptions{Style: Raw})
	for pod, a := range map[*Pod]netip.Addr{p: n.IPv4(20), q: n.IPv6(20)} {
		if _, err := pod.StartGuest(GuestOptions{Addr: a}); err != nil {
			t.Fatal(err)
		}
		// It does not answer pings, so the neighbour entry is the proof.
		if err := n.Ping(a); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("ping %v: %v, want %v", a, err, ErrNoAnswer)
		}
		if !neighbourKnown(t, n, a) {
			t.Errorf("the node has no neighbour entry for %v", a)
		}
	}
}

func neighbourKnown(t *testing.T, n *Node, a netip.Addr) bool {
	t.Helper()
	index, err := n.Ifindex(Bridge)
	if err != nil {
		t.Fatal(err)
	}
	list, err := n.nl.NeighList(index, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if b, _ := netip.AddrFromSlice(e.IP); b.Unmap() == a && len(e.HardwareAddr) == 6 {
			return true
		}
	}
	return false
}

// A guest in a VLAN answers requests with its tag, and with its tag, and no others.
func TestGuestVLAN(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	vm := l.Pod(n, "vm", PodOptions{Style: Raw})
	if _, err := vm.StartGuest(GuestOptions{Addr: n.IPv4(30), VLAN: 42}); err != nil {
		t.Fatal(err)
	}
	asker := l.Pod(n, "asker", PodOptions{Style: Raw})
	mac, err := asker.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	answered := make(map[uint16]*Tap)
	for _, vlan := range []uint16{42, 43, 0} {
		answered[vlan], err = asker.Tap("eth0", func(p Packet) bool { return p.VLAN == vlan && p.EtherType() == etherARP })
		l.Do(err)
	}
	for _, vlan := range []uint16{43, 0, 42} {
		question, err := Solicitation(n.IPv4(31), n.IPv4(30), mac, vlan)
		l.Do(err, asker.SendRaw(question))
	}
	l.Eventually("an answer in its VLAN", func() error {
		if answered[42].Count() == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	// Those to the questions before would have come first.
	for _, vlan := range []uint16{43, 0} {
		if count := answered[vlan].Count(); count > 0 {
			t.Errorf("%d answers in VLAN %d", count, vlan)
		}
	}
}

// A guest that detects conflicts keeps a free address and gives up one that is held.
func TestGuestDetection(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	l.Pod(n, "holder", PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	for last, want := range map[byte]error{6: nil, 5: ErrAddressLost} {
		vm := l.Pod(n, fmt.Sprintf("vm%d", last), PodOptions{Style: Raw})
		g, err := vm.StartGuest(GuestOptions{Addr: n.IPv4(last), Detect: true, Pace: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), Patience(5*time.Second))
		defer cancel()
		if err := g.Owned(ctx); !errors.Is(err, want) {
			t.Errorf("guest with address .%d: got %v, want %v", last, err, want)
		}
	}
}

func TestAddressesAndDeletion(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	n := l.Node("")
	for _, style := range []Style{Bridged, Routed} {
		last := byte(40 + int(style))
		p := l.Pod(n, fmt.Sprintf("pod%d", style), PodOptions{Style: style, Addrs: []netip.Addr{n.IPv4(last)}})
		extra := n.IPv4(last + 100)
		if err := p.AddAddr(extra); err != nil {
			t.Fatal(err)
		}
		if err := n.Ping(extra); err != nil {
			t.Error(err)
		}
		if err := p.DelAddr(extra); err != nil {
			t.Fatal(err)
		}
		if err := p.DelAddr(extra); err == nil {
			t.Error("an address was removed twice")
		}
		if err := p.Delete(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Ifindex(p.HostInterface); err == nil {
			t.Errorf("%s is still there", p.HostInterface)
		}
	}
	reused := l.Pod(n, "second", PodOptions{HostIndex: 4321})
	if got, err := n.Ifindex(reused.HostInterface); err != nil || got != 4321 {
		t.Errorf("ifindex: got %d, %v, want 4321", got, err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	testneeds.Root(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.AddNode("")
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.AddPod("pod", PodOptions{Style: Raw})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.StartGuest(GuestOptions{Addr: n.IPv4(5)}); err != nil {
		t.Fatal(err)
	}
	if len(ours(t, l.Prefix())) != 3 {
		t.Fatalf("netns before: got %q, want switch, node and pod", ours(t, l.Prefix()))
	}
	// The end of the context closes the lab, as Ctrl-C does in the demo.
	cancel()
	for deadline := time.Now().Add(5 * time.Second); len(ours(t, l.Prefix())) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("netns left: %q", ours(t, l.Prefix()))
		}
	}
	if _, err := n.AddPod("late", PodOptions{}); err == nil {
		t.Error("a closed lab made a pod")
	}
	// What does not know of the end yet changes nothing in the network of the machine.
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(127, 0, 77, 1), Mask: net.CIDRMask(32, 32)}}
	change := func(to *netlink.Handle, change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
		lo, err := to.LinkByName("lo")
		if err != nil {
			return err
		}
		return change(to, lo, addr)
	}
	t.Cleanup(func() { _ = change(new(netlink.Handle), (*netlink.Handle).AddrDel) })
	if err := change(n.Netlink(), (*netlink.Handle).AddrAdd); err != nil {
		t.Error(err)
	}
	if err := change(new(netlink.Handle), (*netlink.Handle).AddrDel); err == nil {
		t.Error("the handle of a closed lab has worked in the netns of the test")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "veth5e") || strings.HasPrefix(i.Name, "cali5e") {
			t.Errorf("device left in the netns of the test: %s", i.Name)
		}
	}
}

func ours(t *testing.T, prefix string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(netnsDir, prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range names {
		names[i] = filepath.Base(path)
	}
	return names
}

// What a killed process left is removed; what a living one has is not.
func TestSweep(t *testing.T) {
	testneeds.Root(t)
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	alive := fmt.Sprintf("%s%x-alive", namePrefix, child.Process.Pid)
	dead := fmt.Sprintf("%s%x-dead", namePrefix, 1<<30)
	kill := func() { _ = child.Process.Signal(unix.SIGKILL); _ = child.Wait() }
	t.Cleanup(kill)
	for _, name := range []string{alive, dead} {
		n, err := makeNetns(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.close() })
	}
	dir := filepath.Join(os.TempDir(), dead)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	own := NewT(t).Prefix() + "switch"
	if err := removeLeftovers(false); err != nil {
		t.Fatal(err)
	}
	if left := ours(t, namePrefix); slices.Contains(left, dead) || !slices.Contains(left, alive) || !slices.Contains(left, own) {
		t.Errorf("after the sweep: %q", left)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder of a dead process: got %v, want it gone", err)
	}
	kill()
	if err := removeLeftovers(false); err != nil {
		t.Fatal(err)
	}
	if left := ours(t, namePrefix); slices.Contains(left, alive) {
		t.Errorf("after its process ended: %q", left)
	}
}
