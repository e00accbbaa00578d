package netns

import (
	"fmt"
	"net"
	"os"

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
	// Kind is macvlan, ipvlan or [Physical].
	Kind string
	// Parent is the index of the node's device that a macvlan or ipvlan device sends by.
	Parent int
	Up     bool
}

// DevicesWithoutHostEnd lists up to 64 devices of a netns whose packets reach the calling thread's netns,
// or the wire, without passing a host end.
func DevicesWithoutHostEnd(netnsFile *os.File) ([]Device, error) {
	host, err := os.Open(Self)
	if err != nil {
		return nil, fmt.Errorf("opening own netns: %w", err)
	}
	defer host.Close()
	const limit = 64
	var devices []Device
	err = Do(netnsFile, func() error {
		hostID, err := netlink.GetNetNsIdByFd(int(host.Fd()))
		if err != nil {
			return fmt.Errorf("reading the host's netns id in %s: %w", netnsFile.Name(), err)
		}
		begin := func() { devices = devices[:0] } // an interrupted list begins again
		err = eachDevice(begin, func(d device) {
			switch {
			case len(devices) == limit:
				return
			case d.kind == "macvlan", d.kind == "ipvlan":
				if d.nsid < 0 || d.nsid != hostID {
					return
				}
			case d.kind == "" && d.flags&unix.IFF_LOOPBACK == 0 && d.hardware == unix.ARPHRD_ETHER:
				d.kind = Physical
			default:
				return
			}
			devices = append(devices, Device{
				Name: d.name, Index: d.index, MAC: d.mac, Kind: d.kind, Parent: d.parent, Up: d.flags&unix.IFF_UP != 0,
			})
		})
		if err != nil {
			return fmt.Errorf("scanning netns %s: %w", netnsFile.Name(), err)
		}
		return nil
	})
	return devices, err
}
