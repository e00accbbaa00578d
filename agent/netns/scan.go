package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxAddresses limits a View: a pod may have any number of addresses.
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
	// Valid is false while duplicate address detection runs and after it failed
	// (IFA_F_TENTATIVE, IFA_F_OPTIMISTIC, IFA_F_DADFAILED).
	Valid bool
	// Lost: duplicate address detection failed; the kernel does not use the address.
	Lost bool
	// Down: its device is down.
	Down bool
	// Dynamic: the address has a lifetime, as router advertisements or DHCP give one (no IFA_F_PERMANENT).
	Dynamic bool
}

// Equal reports whether two addresses are the same, also if their devices went up or down.
func (a Address) Equal(b Address) bool {
	a.Down, b.Down = false, false
	return a == b
}

// View is what a scan of a netns found.
type View struct {
	Cookie uint64
	Taken  time.Time     // when the scan began: later changes may be missing
	Cost   time.Duration // CPU time of the scan
	Peer   string        // name of the peer device
	// PeerDown says that the peer device is down: who makes it may not have finished.
	PeerDown bool
	// Addresses are at most 1,024, those Elsewhere last. Truncated says that there were more of the
	// others, or that they changed faster than they could be listed.
	Addresses []Address
	Truncated bool
	// More says that not all addresses are listed, of any device.
	More bool
	// LocalRoutes are those that are not of Addresses: at most 1,024, and as many to devices Elsewhere. More of the former
	// make the View Truncated.
	LocalRoutes []LocalRoute
}

// ErrNoPeer says that the peer device is not, or no longer, in the netns.
var ErrNoPeer = errors.New("the peer device is not there")

// Scan enters the netns and lists its addresses. peer is the index of the other end of a host veth: the
// device through which packets of the netns reach the host. The error may be [ErrNoPeer].
func Scan(file *os.File, peer int) (View, error) {
	view := View{Taken: time.Now()}
	err := Do(file, func() error {
		began := threadTime()
		var err error
		if view.Cookie, err = Cookie(); err != nil {
			return err
		}
		defer func() { view.Cost = threadTime() - began }()
		if err := view.read(peer); err != nil {
			return fmt.Errorf("scanning netns %s: %w", file.Name(), err)
		}
		if view.Peer == "" {
			return fmt.Errorf("scanning netns %s: %w", file.Name(), ErrNoPeer)
		}
		return nil
	})
	return view, err
}

// threadTime returns the CPU time of the calling thread, which must be locked.
func threadTime() time.Duration {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &clock) != nil {
		return 0
	}
	return time.Duration(clock.Nano())
}

// read reads the devices and addresses of the calling thread's netns.
func (v *View) read(peer int) error {
	devices, err := readTopology(peer, eachDevice)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	v.Peer, v.PeerDown, v.Truncated = devices.peerName, devices.peerDown, devices.truncated || err != nil

	// Addresses on the peer have a limit of their own and come first: others must not displace them.
	var kept [Elsewhere + 1][]Address
	var total, all int // of all but those Elsewhere; of all
	err = dump(newDump(unix.RTM_GETADDR), unix.RTM_NEWADDR, func() {
		for where := range kept {
			kept[where] = kept[where][:0]
		}
		total, all = 0, 0
	}, func(message []byte) {
		address, index, ok := parseAddress(message)
		if !ok {
			return
		}
		path := devices.path(index)
		address.Where, address.OuterVLAN, address.InnerVLAN, address.Down = path.where, path.outer, path.inner, devices.down[index]
		if all++; path.where != Elsewhere {
			total++
		}
		if len(kept[path.where]) < maxAddresses {
			kept[path.where] = append(kept[path.where], address)
		}
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("listing addresses: %w", err)
	}
	v.Truncated = v.Truncated || err != nil || total > maxAddresses
	v.More = v.Truncated || all > maxAddresses
	for _, addresses := range kept {
		room := min(len(addresses), maxAddresses-len(v.Addresses))
		v.Addresses = append(v.Addresses, addresses[:room]...)
	}
	return v.readRoutes(&devices)
}

// parseAddress reads an RTM_NEWADDR (struct ifaddrmsg, linux/if_addr.h) and returns the address and the
// index of its device, or false if the address is not global.
func parseAddress(message []byte) (Address, int, bool) {
	if len(message) < unix.SizeofIfAddrmsg {
		return Address{}, 0, false
	}
	flags := uint32(message[2])
	index := int(int32(binary.NativeEndian.Uint32(message[4:])))
	var local, address []byte
	for kind, value := range attributes(message[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_LOCAL:
			local = value
		case unix.IFA_ADDRESS:
			address = value // where there is an IFA_LOCAL: of the other end
		case unix.IFA_FLAGS:
			flags = uint32(number(value))
		}
	}
	if local == nil {
		local = address
	}
	ip, ok := netip.AddrFromSlice(local)
	ip = ip.Unmap()
	if !ok || isLocalScope(ip) || ip.IsUnspecified() {
		return Address{}, 0, false
	}
	const invalid = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC | unix.IFA_F_DADFAILED
	return Address{IP: ip, Valid: flags&invalid == 0, Lost: flags&unix.IFA_F_DADFAILED != 0, Dynamic: flags&unix.IFA_F_PERMANENT == 0}, index, true
}

// Find yields the entries of an address: those that are listed, and one for each local route to it.
func (v *View) Find(ip netip.Addr) iter.Seq[Address] {
	return func(yield func(Address) bool) {
		for _, a := range v.Addresses {
			if a.IP == ip && !yield(a) {
				return
			}
		}
		for _, r := range v.LocalRoutes {
			if r.Prefix.Contains(ip) && !yield(Address{IP: ip, Where: r.Where, OuterVLAN: r.OuterVLAN, InnerVLAN: r.InnerVLAN, Valid: true}) {
				return
			}
		}
	}
}

// finds reports whether an entry of an address meets a condition.
func (v *View) finds(ip netip.Addr, condition func(Address) bool) bool {
	for a := range v.Find(ip) {
		if condition(a) {
			return true
		}
	}
	return false
}

// Holds reports whether the netns has the address, or a local route to it, and answers for it with these tags on the peer.
func (v *View) Holds(ip netip.Addr, outer, inner uint16) bool {
	return v.finds(ip, func(a Address) bool { return a.answers(outer, inner) })
}

// Uses is Holds for what the kernel uses now: an address that is valid, on a device that is up, or a local route to it. Beside
// addresses on other devices, one on a loopback device does not count: real servers of a load balancer have its address there, send
// from it, and do not answer for it (arp_ignore 1). For IPv6, Linux answers for none.
func (v *View) Uses(ip netip.Addr, outer, inner uint16) bool {
	return v.finds(ip, func(a Address) bool {
		return a.answers(outer, inner) && a.Valid && !a.Down && (a.Where != OnLoopback || v.Unnumbered())
	})
}

// HoldsAddress is Holds without local routes: no event tells when one of these ends.
func (v *View) HoldsAddress(ip netip.Addr, outer, inner uint16) bool {
	return slices.ContainsFunc(v.Addresses, func(a Address) bool { return a.IP == ip && a.answers(outer, inner) })
}

func (a *Address) answers(outer, inner uint16) bool {
	return !a.Lost && (a.Where == OnLoopback || a.Where == OnPeer && a.OuterVLAN == outer && a.InnerVLAN == inner)
}

// OnPeer reports whether the peer, or a device that receives through it, has the address.
func (v *View) OnPeer(ip netip.Addr) bool {
	return slices.ContainsFunc(v.Addresses, func(a Address) bool { return a.IP == ip && a.Where == OnPeer })
}

// Configured reports whether somebody gave the address, without a lifetime, to the peer or a device that receives through it.
func (v *View) Configured(ip netip.Addr) bool {
	return slices.ContainsFunc(v.Addresses, func(a Address) bool { return a.IP == ip && a.Where == OnPeer && !a.Dynamic })
}

// Elsewhere reports whether the netns has the address where it does not receive packets with these tags from the peer: on
// another device, or with other tags; or may have it because not all addresses are listed.
func (v *View) Elsewhere(ip netip.Addr, outer, inner uint16) bool {
	return v.More || v.finds(ip, func(a Address) bool { return !a.Lost && a.Where != OnLoopback && !a.answers(outer, inner) })
}

// Has reports whether the netns has the address on any device, or a local route to it.
func (v *View) Has(ip netip.Addr) bool {
	return v.finds(ip, func(Address) bool { return true })
}

// Unnumbered reports whether the netns has addresses on loopback devices only, if any, as a host that announces
// its address by BGP, or the sandbox of a virtual machine. Packets to them arrive on the peer.
func (v *View) Unnumbered() bool {
	return !v.Truncated && !slices.ContainsFunc(v.Addresses, func(a Address) bool { return a.Where != OnLoopback })
}

// Valid reports whether the netns has the address validly on the peer, a device on top of it or a loopback device, or has a
// local route to it there.
func (v *View) Valid(ip netip.Addr) bool {
	return v.finds(ip, func(a Address) bool { return a.Where != Elsewhere && a.Valid })
}

// Covers reports whether the list of addresses is complete for packets with these tags. It is not
// if the peer has no address with these tags: a virtual machine or a process with a packet socket may
// have one that the kernel does not know.
func (v *View) Covers(outer, inner uint16) bool {
	return !v.Truncated && slices.ContainsFunc(v.Addresses, func(a Address) bool {
		return a.Where == OnPeer && a.OuterVLAN == outer && a.InnerVLAN == inner
	})
}
