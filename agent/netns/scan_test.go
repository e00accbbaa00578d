package netns_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
)

// TestScan builds a pod with every kind of device that matters and reads it back.
func TestScan(t *testing.T) {
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pod2"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}))
	host, err := netlink.LinkByName("pod2")
	must(t, err)
	file := pod.Open(t)
	must(t, netns.Do(file, func() error {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		bridge := func(name string) netlink.Link {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			link := &netlink.Bridge{LinkAttrs: attrs}
			must(t, netlink.LinkAdd(link))
			return link
		}
		master, nested := bridge("k6t-eth0"), bridge("docker0")
		must(t, netlink.LinkSetMaster(eth0, master))
		mvAttrs := netlink.NewLinkAttrs()
		mvAttrs.Name, mvAttrs.ParentIndex = "mv0", master.Attrs().Index
		macvlan := &netlink.Macvlan{LinkAttrs: mvAttrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
		must(t, netlink.LinkAdd(macvlan))
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		for _, up := range []netlink.Link{lo, eth0, master} {
			must(t, netlink.LinkSetUp(up))
		}
		for _, address := range []struct {
			on netlink.Link
			ip string
		}{
			{eth0, "10.1.0.1/24"},
			{eth0, "169.254.7.7/16"},
			{master, "10.1.0.2/24"},
			{macvlan, "10.1.0.3/24"},
			{lo, "10.1.0.4/32"},
			{nested, "172.17.0.1/16"},
		} {
			parsed, err := netlink.ParseAddr(address.ip)
			must(t, err)
			must(t, netlink.AddrAdd(address.on, parsed))
		}
		return nil
	}))
	view, err := netns.Scan(file, host.Attrs().ParentIndex)
	must(t, err)
	want := []netns.Address{
		{IP: netip.MustParseAddr("10.1.0.1"), Where: netns.OnPeer, Valid: true},
		{IP: netip.MustParseAddr("10.1.0.2"), Where: netns.OnPeer, Valid: true},
		{IP: netip.MustParseAddr("10.1.0.3"), Where: netns.OnPeer, Valid: true, Down: true},
		{IP: netip.MustParseAddr("10.1.0.4"), Where: netns.OnLoopback, Valid: true},
		{IP: netip.MustParseAddr("172.17.0.1"), Where: netns.Elsewhere, Valid: true, Down: true},
	}
	if diff := cmp.Diff(want, view.Addresses, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmpopts.SortSlices(func(a, b netns.Address) bool { return a.IP.Less(b.IP) })); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if view.Peer != "eth0" || view.PeerDown {
		t.Errorf("the peer is %s, down %t", view.Peer, view.PeerDown)
	}
	must(t, netns.Do(file, func() error {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		return netlink.LinkSetDown(eth0)
	}))
	if view, err := netns.Scan(file, host.Attrs().ParentIndex); err != nil || !view.PeerDown {
		t.Errorf("the peer is set down: down %t, %v", view.PeerDown, err)
	}
}

func TestUses(t *testing.T) {
	ip := netip.MustParseAddr
	view := netns.View{
		Addresses: []netns.Address{
			{IP: ip("10.0.0.1"), Where: netns.OnPeer, Valid: true},
			{IP: ip("10.0.0.2"), Where: netns.OnPeer, OuterVLAN: 100, Valid: true},
			{IP: ip("10.0.0.3"), Where: netns.OnLoopback, Valid: true},
			{IP: ip("10.0.0.4"), Where: netns.OnPeer, Valid: true, Down: true},
			{IP: ip("172.17.0.1"), Where: netns.Elsewhere, Valid: true},
			{IP: ip("fd00::5"), Where: netns.OnPeer},
			{IP: ip("fd00::6"), Where: netns.OnPeer, Lost: true},
		},
		LocalRoutes: []netns.LocalRoute{{Prefix: netip.MustParsePrefix("10.9.0.0/24"), Where: netns.OnLoopback}},
	}
	for text, want := range map[string]bool{
		"10.0.0.1": true, "10.0.0.2": false, "10.0.0.3": false, "10.0.0.4": false, "172.17.0.1": false, "fd00::5": false, "fd00::6": false, "10.9.0.7": false,
		"10.0.0.9": false,
	} {
		if got := view.Uses(ip(text), 0, 0); got != want {
			t.Errorf("Uses(%s) = %t", text, got)
		}
	}
	if !view.Uses(ip("10.0.0.2"), 100, 0) {
		t.Error("it does not use an address of a VLAN")
	}
	view.Addresses = view.Addresses[2:3]
	for _, text := range []string{"10.0.0.3", "10.9.0.7"} {
		if !view.Uses(ip(text), 0, 0) {
			t.Errorf("it does not use %s, and there are addresses on lo only", text)
		}
	}
}

func TestHoldsAndCovers(t *testing.T) {
	ip := netip.MustParseAddr
	view := netns.View{Addresses: []netns.Address{
		{IP: ip("10.0.0.1"), Where: netns.OnPeer},
		{IP: ip("10.0.0.2"), Where: netns.OnPeer, OuterVLAN: 100},
		{IP: ip("10.0.0.3"), Where: netns.OnLoopback},
		{IP: ip("172.17.0.1"), Where: netns.Elsewhere},
		{IP: ip("fd00::4"), Where: netns.OnPeer, Lost: true},
	}}
	for _, test := range []struct {
		ip     string
		vlan   uint16
		holds  bool
		covers bool
	}{
		{"10.0.0.1", 0, true, true},
		{"10.0.0.1", 100, false, true},
		{"10.0.0.2", 100, true, true},
		{"10.0.0.2", 0, false, true},
		{"10.0.0.3", 100, true, true},
		{"172.17.0.1", 0, false, true},
		{"fd00::4", 0, false, true},
		{"10.0.0.9", 0, false, true},
		{"10.0.0.9", 200, false, false}, // no device of the kernel's there: a guest may be
	} {
		if got := view.Holds(ip(test.ip), test.vlan, 0); got != test.holds {
			t.Errorf("Holds(%s, %d) = %t", test.ip, test.vlan, got)
		}
		if got := view.Covers(test.vlan, 0); got != test.covers {
			t.Errorf("Covers(%d) = %t", test.vlan, got)
		}
	}
	var empty netns.View
	if empty.Covers(0, 0) {
		t.Error("a netns without addresses covers packets")
	}
}

// A pod that changes its addresses all the time is still scanned. The list is then Truncated.
func TestScanWhileAddressesChange(t *testing.T) {
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pod3"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	host, err := netlink.LinkByName("pod3")
	must(t, err)
	file := pod.Open(t)
	stop, done := make(chan struct{}), make(chan error, 1)
	filled := make(chan struct{})
	go func() {
		done <- netns.Do(file, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			for n := range 900 {
				address := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(198, 18, byte(n>>8), byte(n)))}
				if err := netlink.AddrAdd(lo, address); err != nil {
					return err
				}
			}
			close(filled)
			address := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(198, 19, 0, 1))}
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := errors.Join(netlink.AddrAdd(lo, address), netlink.AddrDel(lo, address)); err != nil {
					return err
				}
			}
		})
	}()
	<-filled
	interrupted := 0
	for range 500 {
		view, err := netns.Scan(file, host.Attrs().ParentIndex)
		must(t, err)
		if view.Truncated {
			interrupted++
		}
	}
	close(stop)
	must(t, <-done)
	t.Logf("%d of 500 scans were interrupted", interrupted)
}

// Addresses on the peer are listed first, and more than the limit are reported as Truncated.
func TestScanAtManyAddresses(t *testing.T) {
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pod4"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	host, err := netlink.LinkByName("pod4")
	must(t, err)
	file := pod.Open(t)
	add := func(device string, ips ...string) {
		t.Helper()
		must(t, netns.Do(file, func() error {
			link, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			for _, ip := range ips {
				address := &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(ip)), Flags: unix.IFA_F_NODAD}
				if err := netlink.AddrAdd(link, address); err != nil {
					return fmt.Errorf("add %s: %w", ip, err)
				}
			}
			return nil
		}))
	}
	scan := func(truncated bool, want int) []netns.Address {
		t.Helper()
		// The kernel may still add addresses, and interrupt the list.
		for deadline := time.Now().Add(time.Minute); ; {
			view, err := netns.Scan(file, host.Attrs().ParentIndex)
			must(t, err)
			if view.Truncated == truncated && len(view.Addresses) == want {
				return view.Addresses
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d addresses, truncated %t, want %d and %t", len(view.Addresses), view.Truncated, want, truncated)
			}
		}
	}
	must(t, netns.Do(file, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "docker0"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}))
	var elsewhere, onLoopback []string
	for n := range 1500 {
		elsewhere = append(elsewhere, fmt.Sprintf("fd00:e::%x", n+1))
		onLoopback = append(onLoopback, fmt.Sprintf("fd00:10::%x", n+1))
	}
	add("docker0", elsewhere...)
	add("lo", onLoopback[:22]...)
	add("eth0", "10.1.0.1")
	scan(false, 1024) // what it could answer for is all there
	add("lo", onLoopback[22:]...)
	add("eth0", "10.1.0.2", "fd00:1::1")
	addresses := scan(true, 1024)
	for n, address := range addresses {
		where := netns.OnLoopback
		if n < 3 {
			where = netns.OnPeer
		}
		if address.Where != where {
			t.Fatalf("address %d is %+v, want %v", n, address, where)
		}
	}
	must(t, netns.Do(file, func() error {
		docker0, err := netlink.LinkByName("docker0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(docker0)
	}))
	must(t, netns.Do(file, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, ip := range onLoopback[1021:] {
			address := &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(ip))}
			if err := netlink.AddrDel(lo, address); err != nil {
				return err
			}
		}
		return nil
	}))
	scan(false, 1024)
}

// A scan of many addresses and devices needs little memory.
func TestScanTakesNoMemoryForEach(t *testing.T) {
	pod := ownnetns.NewPod(t)
	file := pod.Open(t)
	allocations := func() float64 {
		return testing.AllocsPerRun(5, func() {
			if _, err := netns.Scan(file, 1); err != nil {
				t.Fatal(err)
			}
		})
	}
	const addresses, devices = 1000, 30
	few := allocations()
	must(t, netns.Do(file, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for n := range addresses {
			ip := net.ParseIP(fmt.Sprintf("fd00:10::%x", n+1))
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(ip), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return nil
	}))
	many := allocations()
	if many > few+addresses/5 {
		t.Errorf("%.0f allocations for %d addresses, %.0f for none", many, addresses, few)
	}
	must(t, netns.Do(file, func() error {
		for n := range devices {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprint("br", n)
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				return err
			}
		}
		return nil
	}))
	// Each device may allocate two names and a part of a buffer.
	if all := allocations(); all > many+5*devices {
		t.Errorf("%.0f allocations with %d devices, %.0f without", all, devices, many)
	}
}

// BenchmarkScan measures a scan of a netns with many addresses.
func BenchmarkScan(b *testing.B) {
	for _, addresses := range []int{2, 1000} {
		b.Run(fmt.Sprint(addresses), func(b *testing.B) {
			pod := ownnetns.NewPod(b)
			file := pod.Open(b)
			if err := netns.Do(file, func() error {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				for n := range addresses {
					ip := net.ParseIP(fmt.Sprintf("fd00:10::%x", n+1))
					if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(ip), Flags: unix.IFA_F_NODAD}); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if view, err := netns.Scan(file, 1); err != nil || len(view.Addresses) != addresses {
					b.Fatalf("%d addresses, %v", len(view.Addresses), err)
				}
			}
		})
	}
}
