package netns

import (
	"encoding/binary"
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
	// Valid is false while duplicate address detection runs or after it failed
	// (IFA_F_TENTATIVE, IFA_F_OPTIMISTIC, IFA_F_DADFAILED).
	Valid bool
	// Lost: it failed, because somebody else has the address; the kernel does not use it.
	Lost bool
}

// View is what a scan of a netns found.
type View struct {
	// Cookie identifies the netns for the life of the boot.
	Cookie uint64
	// Taken is when the scan began: later changes are not in it.
	Taken time.Time
	// Cost is the CPU time that the scan took.
	Cost time.Duration
	// Peer is the name of the peer device.
	Peer string
	// Addresses are at most 1,024, those Elsewhere last. Truncated says that there were
	// more of the others, or that they changed faster than they could be listed.
	Addresses []Address
	Truncated bool
}

// ErrNoPeer says that the peer device is not, or no longer, in the netns.
var ErrNoPeer = errors.New("the peer device is not there")

// Scan enters the netns and lists its addresses, seen from the device with index
// peer, the other end of a host veth. The error may be [ErrNoPeer].
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

// threadTime is the CPU time of the calling thread, which must be locked.
func threadTime() time.Duration {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &clock) != nil {
		return 0
	}
	return time.Duration(clock.Nano())
}

// read fills the view by what the calling thread's netns has.
func (v *View) read(peer int) error {
	devices, err := readTopology(peer, eachDevice)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	v.Peer, v.Truncated = devices.peerName, devices.truncated || err != nil

	// Those on the peer have a bound of their own and come first: whatever else a pod has
	// must not displace them.
	var kept [Elsewhere + 1][]Address
	var total int // of those that the netns may answer for
	err = dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, func() {
		for where := range kept {
			kept[where] = kept[where][:0]
		}
		total = 0
	}, func(message []byte) {
		address, index, ok := parseAddress(message)
		if !ok {
			return
		}
		path := devices.path(index)
		address.Where, address.OuterVLAN, address.InnerVLAN = path.where, path.outer, path.inner
		if path.where != Elsewhere {
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
	for _, addresses := range kept {
		room := min(len(addresses), maxAddresses-len(v.Addresses))
		v.Addresses = append(v.Addresses, addresses[:room]...)
	}
	return nil
}

// parseAddress reads an RTM_NEWADDR (struct ifaddrmsg, linux/if_addr.h) and returns the
// address with the index of its device. It reports false for one that is not global.
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
			address = value // with IFA_LOCAL that of the other end
		case unix.IFA_FLAGS:
			flags = uint32(number(value))
		}
	}
	if local == nil {
		local = address
	}
	ip, ok := netip.AddrFromSlice(local)
	ip = ip.Unmap()
	if !ok || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return Address{}, 0, false
	}
	const invalid = unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC | unix.IFA_F_DADFAILED
	return Address{IP: ip, Valid: flags&invalid == 0, Lost: flags&unix.IFA_F_DADFAILED != 0}, index, true
}

// Holds reports whether the netns itself has the address and would answer for it with
// these tags on the peer.
func (v *View) Holds(ip netip.Addr, outer, inner uint16) bool {
	for _, a := range v.Addresses {
		if a.IP != ip || a.Lost {
			continue
		}
		if a.Where == OnLoopback || a.Where == OnPeer && a.OuterVLAN == outer && a.InnerVLAN == inner {
			return true
		}
	}
	return false
}

// Lists reports whether any device of the netns has the address.
func (v *View) Lists(ip netip.Addr) bool {
	return slices.ContainsFunc(v.Addresses, func(a Address) bool { return a.IP == ip })
}

// Unnumbered reports whether the netns has addresses on loopback devices and on no other: the
// packets to those arrive on the peer then, as on a host that announces its address by BGP, and in
// the sandbox of a virtual machine.
func (v *View) Unnumbered() bool {
	return !v.Truncated && len(v.Addresses) > 0 &&
		!slices.ContainsFunc(v.Addresses, func(a Address) bool { return a.Where != OnLoopback })
}

// Valid reports whether a device that is reached through the peer has the address and
// its duplicate address detection has ended.
func (v *View) Valid(ip netip.Addr) bool {
	return slices.ContainsFunc(v.Addresses, func(a Address) bool {
		return a.IP == ip && a.Where == OnPeer && a.Valid
	})
}

// Covers reports whether the list of addresses is complete for packets with
// these tags. It is not for a netns without an address on the peer with these tags,
// whatever it has on other interfaces: a virtual machine or a process with a packet
// socket may own one that the kernel does not know.
func (v *View) Covers(outer, inner uint16) bool {
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
