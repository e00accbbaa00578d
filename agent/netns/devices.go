package netns

import (
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Physical is the [Device.Kind] of a device that is not virtual, such as an SR-IOV function in a pod.
const Physical = "physical"

// Device is a device of a netns.
type Device struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// Kind is as in "ip -d link": macvlan, ipvlan, macvtap, ipvtap or vlan of one without a host end. That of one that is not virtual is
	// empty, or [Physical] if it has no host end.
	Kind string
	// Parent is the index of the device that it sends by (IFLA_LINK): of one without a host end that is the node's, unless it is Physical.
	Parent int
	VLAN   uint16 // of a vlan device
	Up     bool

	master   int    // the bridge, bond or VRF
	nsid     int    // of the netns that the parent is in, -1 for the same
	hardware uint16 // ARPHRD_
}

// MaxDevices limits what [DevicesWithoutHostEnd] lists: a pod may make any number.
const MaxDevices = 64

// DevicesWithoutHostEnd lists the devices of a netns that have no device of their own on the host: their packets reach the calling
// thread's netns, or the wire, without passing a host end. If there are more than [MaxDevices], known ones, by index, are before
// others, and more counts those that are left out.
func DevicesWithoutHostEnd(netnsFile *os.File, known map[int]bool) (devices []Device, more int, err error) {
	host, err := unix.Open(Self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("opening own netns: %w", err)
	}
	defer unix.Close(host)
	var others []Device
	err = Do(netnsFile, func() error {
		hostID, err := netlink.GetNetNsIdByFd(host)
		if err != nil {
			return fmt.Errorf("reading the host's netns id in %s: %w", netnsFile.Name(), err)
		}
		begin := func() { devices, others, more = devices[:0], others[:0], 0 } // an interrupted list begins again
		err = eachDevice(begin, func(d Device) {
			switch {
			case slices.Contains([]string{"macvlan", "ipvlan", "macvtap", "ipvtap", "vlan"}, d.Kind):
				if d.nsid < 0 || d.nsid != hostID {
					return
				}
			case d.Kind == "" && d.hardware == unix.ARPHRD_ETHER:
				d.Kind = Physical
			default:
				return
			}
			list := &others
			if known[d.Index] {
				list = &devices
			}
			if len(*list) == MaxDevices {
				more++
				return
			}
			*list = append(*list, d)
		})
		if err != nil {
			return fmt.Errorf("scanning netns %s: %w", netnsFile.Name(), err)
		}
		return nil
	})
	room := min(len(others), MaxDevices-len(devices))
	return append(devices, others[:room]...), more + len(others) - room, err
}
