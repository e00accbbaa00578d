package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// neighbour returns the MAC of an address from the kernel's neighbour table, nil if there is no
// usable entry. The kernel uses stale entries and confirms them later.
func neighbour(device int, ip netip.Addr) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	entry, err := get(family, device, nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()))
	const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT
	if err != nil || entry == nil || entry.State&usable == 0 || len(entry.HardwareAddr) != 6 {
		return nil, err
	}
	return entry.HardwareAddr, nil
}

// portOf returns the index of the bridge port that frames to a MAC leave by, the bridge's own for its
// own MAC, and 0 if its table has no entry; then the bridge floods the frames.
func portOf(bridge int, mac net.HardwareAddr, vid uint16) (int, error) {
	attrs := []*nl.RtAttr{
		nl.NewRtAttr(unix.NDA_LLADDR, mac),
		nl.NewRtAttr(unix.NDA_MASTER, nl.Uint32Attr(uint32(bridge))),
	}
	if vid != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.NDA_VLAN, nl.Uint16Attr(vid)))
	}
	entry, err := get(unix.AF_BRIDGE, 0, attrs...)
	if err != nil || entry == nil {
		return 0, err
	}
	return entry.LinkIndex, nil
}

// get returns one entry of a neighbour table, nil if it does not exist (RTM_GETNEIGH without
// NLM_F_DUMP, Linux 5.0). The kernel does not resolve the neighbour because of it.
func get(family, device int, attrs ...*nl.RtAttr) (*netlink.Neigh, error) {
	// struct ndmsg, linux/neighbour.h. The library's type has padding that is not zeroed, which
	// the kernel refuses.
	data := make([]byte, unix.SizeofNdMsg)
	data[0] = byte(family)
	binary.NativeEndian.PutUint32(data[4:], uint32(device))
	for _, attr := range attrs {
		data = append(data, attr.Serialize()...)
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_REQUEST)
	request.AddRawData(data)
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking up a neighbour: %w", err)
	case len(answers) != 1 || len(answers[0]) < unix.SizeofNdMsg:
		return nil, fmt.Errorf("looking up a neighbour: %d replies", len(answers))
	}
	return netlink.NeighDeserialize(answers[0])
}
