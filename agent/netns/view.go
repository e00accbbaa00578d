package netns

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxAddresses bounds what a View keeps: a pod may hold as many addresses as it likes.
const maxAddresses = 1024

// Where says on what kind of device of the netns an address is.
type Where uint8

// The kinds of devices.
const (
	// OnPeer: the peer of the host interface, or a device that receives through it.
	OnPeer Where = iota + 1
	// OnLoopback: lo or a dummy device; the netns answers for it on any interface.
	OnLoopback
	// Elsewhere: another interface, or something nested such as docker0.
	Elsewhere
)

// Address is one global-scope address in a netns.
type Address struct {
	IP    netip.Addr
	Where Where
	// OuterVLAN and InnerVLAN are the tags its packets carry on the peer; 0 is none.
	OuterVLAN, InnerVLAN uint16
	// Settled is false while duplicate address detection runs or after it failed
	// (IFA_F_TENTATIVE, IFA_F_OPTIMISTIC, IFA_F_DADFAILED).
	Settled bool
}

// View is what a look into a netns showed.
type View struct {
	// Cookie identifies the netns for the life of the boot.
	Cookie uint64
	// Taken is when the look began: later changes are not in it.
	Taken time.Time
	// Cost is the CPU time that the look took.
	Cost time.Duration
	// Peer is the name of the peer device.
	Peer string
	// Addresses are at most 1,024. Truncated says that there were more, or that they
	// changed faster than they could be listed.
	Addresses []Address
	Truncated bool
}

// ErrNoPeer says that the peer device is not, or no longer, in the netns.
var ErrNoPeer = errors.New("the peer device is not there")

// Look enters the netns and lists its addresses, seen from the device with index
// peer, the other end of a host veth. The error may be [ErrNoPeer].
func Look(file *os.File, peer int) (View, error) {
	view := View{Taken: time.Now()}
	err := Do(file, func() error {
		began := threadTime()
		var err error
		if view.Cookie, err = Cookie(); err != nil {
			return err
		}
		defer func() { view.Cost = threadTime() - began }()
		links, err := List(netlink.LinkList)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("listing devices of netns %s: %w", file.Name(), err)
		}
		view.Truncated = err != nil
		addrs, err := List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("listing addresses of netns %s: %w", file.Name(), err)
		}
		view.Truncated = view.Truncated || err != nil
		view.fill(links, addrs, peer)
		if view.Peer == "" {
			return fmt.Errorf("looking into netns %s: %w", file.Name(), ErrNoPeer)
		}
		return nil
	})
	return view, err
}

// threadTime is the CPU time of the calling thread, which must be locked.
func threadTime() time.Duration {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &clock) != nil {
		return 0
	}
	return time.Duration(clock.Nano())
}

// fill computes the view; apart from Look for tests.
func (v *View) fill(links []netlink.Link, addrs []netlink.Addr, peer int) {
	paths := reach(links, peer)
	// Those on the peer first: whatever else a pod holds must not push them out.
	slices.SortStableFunc(addrs, func(a, b netlink.Addr) int {
		return cmp.Compare(rank(paths[a.LinkIndex].where), rank(paths[b.LinkIndex].where))
	})
	for _, link := range links {
		if link.Attrs().Index == peer {
			v.Peer = link.Attrs().Name
		}
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		ip = ip.Unmap()
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
			continue
		}
		if len(v.Addresses) == maxAddresses {
			v.Truncated = true
			return
		}
		path, ok := paths[a.LinkIndex]
		if !ok {
			path.where = Elsewhere
		}
		const unsettled = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC | unix.IFA_F_DADFAILED
		v.Addresses = append(v.Addresses, Address{
			IP:        ip,
			Where:     path.where,
			OuterVLAN: path.outer,
			InnerVLAN: path.inner,
			Settled:   a.Flags&unsettled == 0,
		})
	}
}

// rank orders devices by how much their addresses matter.
func rank(where Where) Where {
	if where == 0 {
		return Elsewhere
	}
	return where
}

// path is how packets get from the peer to a device.
type path struct {
	where        Where
	outer, inner uint16
}

// reach tells which devices receive what arrives on the peer: the peer, its
// bridge, bond or VRF, and VLAN, macvlan and ipvlan devices on top of any of them.
func reach(links []netlink.Link, peer int) map[int]path {
	paths := make(map[int]path)
	for _, link := range links {
		attrs := link.Attrs()
		switch {
		case attrs.Index == peer:
			paths[peer] = path{where: OnPeer}
			if attrs.MasterIndex != 0 {
				paths[attrs.MasterIndex] = path{where: OnPeer}
			}
		case attrs.Name == "lo" || link.Type() == "dummy":
			paths[attrs.Index] = path{where: OnLoopback}
		}
	}
	// Devices may be listed before their parents, and stand at most two tags high.
	for range 3 {
		for _, link := range links {
			attrs := link.Attrs()
			if _, known := paths[attrs.Index]; known || attrs.NetNsID >= 0 {
				continue
			}
			parent, ok := paths[attrs.ParentIndex]
			if !ok || parent.where != OnPeer {
				continue
			}
			switch dev := link.(type) {
			case *netlink.Vlan:
				id := uint16(dev.VlanId)
				switch {
				case parent.outer == 0:
					parent.outer = id
				case parent.inner == 0:
					parent.inner = id
				default:
					continue
				}
			case *netlink.Macvlan, *netlink.IPVlan:
			default:
				continue
			}
			paths[attrs.Index] = parent
		}
	}
	return paths
}

// Holds says whether the netns itself has the address and would speak for it with
// these tags on the peer.
func (v *View) Holds(ip netip.Addr, outer, inner uint16) bool {
	for _, a := range v.Addresses {
		if a.IP != ip {
			continue
		}
		if a.Where == OnLoopback || a.Where == OnPeer && a.OuterVLAN == outer && a.InnerVLAN == inner {
			return true
		}
	}
	return false
}

// Settled says whether a device that is reached through the peer has the address and
// is through with detecting duplicates of it.
func (v *View) Settled(ip netip.Addr) bool {
	return slices.ContainsFunc(v.Addresses, func(a Address) bool {
		return a.IP == ip && a.Where == OnPeer && a.Settled
	})
}

// Explains says whether the list of addresses is the whole truth for packets with
// these tags. It is not for a netns without an address on the peer with these tags,
// whatever it has on other interfaces: a virtual machine or a process with a packet
// socket may own one that the kernel does not know.
func (v *View) Explains(outer, inner uint16) bool {
	if v.Truncated {
		return false
	}
	for _, a := range v.Addresses {
		if a.Where == OnPeer && a.OuterVLAN == outer && a.InnerVLAN == inner {
			return true
		}
	}
	return false
}
