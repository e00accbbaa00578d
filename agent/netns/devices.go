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

// Device is a device in another netns that has no host end: no device of its own on the host.
type Device struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// Kind is macvlan, ipvlan, macvtap, ipvtap, vlan or [Physical].
	Kind string
	// Parent is the index of the node's device that it sends by, unless it is Physical.
	Parent int
	VLAN   uint16 // of a vlan device
	Up     bool
}

// MaxDevices limits what [DevicesWithoutHostEnd] lists: a pod may make any number.
const MaxDevices = 64

// DevicesWithoutHostEnd lists the devices of a netns whose packets reach the calling thread's netns, or the wire, without
// passing a host end. If there are more than [MaxDevices], known ones, by index, are before others, and more counts those that are left out.
func DevicesWithoutHostEnd(netnsFile *os.File, known map[int]bool) (devices []Device, more int, err error) {
	host, err := os.Open(Self)
	if err != nil {
		return nil, 0, fmt.Errorf("opening own netns: %w", err)
	}
	defer host.Close()
	var others []Device
	err = Do(netnsFile, func() error {
		hostID, err := netlink.GetNetNsIdByFd(int(host.Fd()))
		if err != nil {
			return fmt.Errorf("reading the host's netns id in %s: %w", netnsFile.Name(), err)
		}
		begin := func() { devices, others, more = devices[:0], others[:0], 0 } // an interrupted list begins again
		err = eachDevice(begin, func(d device) {
			switch {
			case slices.Contains([]string{"macvlan", "ipvlan", "macvtap", "ipvtap", "vlan"}, d.kind):
				if d.nsid < 0 || d.nsid != hostID {
					return
				}
			case d.kind == "" && d.flags&unix.IFF_LOOPBACK == 0 && d.hardware == unix.ARPHRD_ETHER:
				d.kind = Physical
			default:
				return
			}
			list := &others
			if known[d.index] {
				list = &devices
			}
			if len(*list) == MaxDevices {
				more++
				return
			}
			*list = append(*list, Device{
				Name: d.name, Index: d.index, MAC: d.mac, Kind: d.kind, Parent: d.parent, VLAN: d.vlan, Up: d.flags&unix.IFF_UP != 0,
			})
		})
		if err != nil {
			return fmt.Errorf("scanning netns %s: %w", netnsFile.Name(), err)
		}
		return nil
	})
	room := min(len(others), MaxDevices-len(devices))
	return append(devices, others[:room]...), more + len(others) - room, err
}
