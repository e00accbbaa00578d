package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// Whatever a pod does, its duplicate is found, and stays a conflict as long as both
// pods have the address.
func TestNoPodHidesADuplicate(t *testing.T) {
	for _, tt := range []struct {
		name string
		// before is run before the newcomer takes the address, after when the conflict is confirmed;
		// both may start goroutines that run until ctx ends.
		before, after func(ctx context.Context, newcomer *lab.Pod, ip netip.Addr) error
	}{
		{
			name: "it renames its interface",
			after: func(_ context.Context, newcomer *lab.Pod, _ netip.Addr) error {
				eth0, err := newcomer.Netlink().LinkByName("eth0")
				if err != nil {
					return err
				}
				// The other address makes the agent look.
				return errors.Join(newcomer.Netlink().LinkSetName(eth0, "x0"),
					newcomer.AddAddrOn("x0", netip.MustParsePrefix("192.0.2.77/32")))
			},
		},
		{
			name: "it takes more addresses than are kept",
			after: func(_ context.Context, newcomer *lab.Pod, _ netip.Addr) error {
				for n := range 1100 {
					ip := netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
					if err := newcomer.AddAddrOn("lo", netip.PrefixFrom(ip, 32)); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{
			name: "it changes its addresses faster than they can be listed",
			before: func(ctx context.Context, newcomer *lab.Pod, _ netip.Addr) error {
				for n := range 500 {
					ip := netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
					if err := newcomer.AddAddrOn("lo", netip.PrefixFrom(ip, 32)); err != nil {
						return err
					}
				}
				lo, err := newcomer.Netlink().LinkByName("lo")
				if err != nil {
					return err
				}
				address, err := netlink.ParseAddr("198.19.0.1/32")
				if err != nil {
					return err
				}
				go func() {
					for ctx.Err() == nil {
						_ = newcomer.Netlink().AddrAdd(lo, address)
						_ = newcomer.Netlink().AddrDel(lo, address)
					}
				}()
				return nil
			},
		},
		{
			name: "it makes up VLANs",
			before: func(_ context.Context, newcomer *lab.Pod, _ netip.Addr) error {
				mac, err := newcomer.MAC(newcomer.Interface)
				if err != nil {
					return err
				}
				for vlan := range uint16(80) {
					ip := netip.AddrFrom4([4]byte{10, 66, 0, byte(vlan + 1)})
					packet := lab.ARP(lab.ARPRequest, mac, ip, make(net.HardwareAddr, 6), ip)
					if err := newcomer.SendRaw(lab.Ethernet(lab.Broadcast, mac, vlan+1, unix.ETH_P_ARP, packet)); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{
			name: "it probes its own address all the time",
			before: func(ctx context.Context, newcomer *lab.Pod, ip netip.Addr) error {
				go func() {
					for ctx.Err() == nil {
						_ = newcomer.Probe(ip)
						select {
						case <-ctx.Done():
						case <-time.After(100 * time.Millisecond):
						}
					}
				}()
				return nil
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			a := l.Agent(n)
			w := l.Watch(a)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ip := n.IPv4(5)
			l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{ip}})
			newcomer := l.Pod(n, "newcomer", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
			if tt.before != nil {
				l.Do(tt.before(ctx, newcomer, ip))
			}
			l.Do(newcomer.AddAddr(ip))
			_, err := w.WaitConfirmed(ip, patience)
			l.Do(err)
			if tt.after != nil {
				l.Do(tt.after(ctx, newcomer, ip))
				// Longer than it takes to resolve, and than one re-check.
				if err := w.Never(9*time.Second, func(e lab.Event) bool { return e.Type == "resolved" }); err != nil {
					t.Error("a live conflict was resolved: ", err)
				}
			}
		})
	}
}

// An address of the node whose own duplicate address detection failed is not in use, and so no second
// holder beside the pod that has it.
func TestHostAddressThatFailedItsDetection(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv6(5)
	l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{ip}})
	_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Evidence == "announced" })
	l.Do(err)
	bridge, err := n.Netlink().LinkByName("cni0")
	l.Do(err)
	l.Do(n.Sysctl("ipv6/conf/all/accept_dad", "1"), n.Sysctl("ipv6/conf/cni0/accept_dad", "1"),
		n.Sysctl("ipv6/conf/cni0/dad_transmits", "1"))
	l.Do(n.Netlink().AddrAdd(bridge, &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(64, 128)}}))
	l.Eventually("the detection fails", func() error {
		addrs, err := n.Netlink().AddrList(bridge, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		for _, addr := range addrs {
			if addr.IP.Equal(ip.AsSlice()) && addr.Flags&unix.IFA_F_DADFAILED != 0 {
				return nil
			}
		}
		return fmt.Errorf("no failed address in %v", addrs)
	})
	l.Do(w.NeverConfirmed(3 * time.Second))
}

// A second agent on a node is rejected, whatever its socket, before it changes what the first one has
// attached.
func TestOneAgentPerNode(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	l.Do(addClsact(n))
	l.Agent(n, "--attach", "tc")
	wantPrograms(l, n, "observed", programs{TC: 1, Qdisc: "clsact"})
	var got outcome
	l.Do(n.Exec(func() error {
		got = dupip(t, nil, "agent", "--attach", "tc", "--api-socket", filepath.Join(t.TempDir(), "other.sock"))
		return nil
	}))
	wantOneLine(t, got, "another agent already observes this node")
	wantPrograms(l, n, "after the second agent was refused", programs{TC: 1, Qdisc: "clsact"})
}
