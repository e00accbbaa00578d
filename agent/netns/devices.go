package netns

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Physical is the kind of a device that is no virtual one, such as an SR-IOV
// function that was moved into a pod.
const Physical = "physical"

// Device is a device of another netns that hangs directly on the host.
type Device struct {
	Name  string
	Index int
	// Kind is macvlan, ipvlan or [Physical].
	Kind string
}

// DevicesOnHost lists the devices of a netns whose packets reach the calling
// thread's netns, or the wire, without passing a host-side device of their own.
func DevicesOnHost(file *os.File) ([]Device, error) {
	host, err := os.Open(Self)
	if err != nil {
		return nil, fmt.Errorf("opening own netns: %w", err)
	}
	defer host.Close()
	var devices []Device
	err = Do(file, func() error {
		links, err := List(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("listing devices of netns %s: %w", file.Name(), err)
		}
		hostID := -1
		for _, link := range links {
			attrs := link.Attrs()
			device := Device{Name: attrs.Name, Index: attrs.Index, Kind: link.Type()}
			switch device.Kind {
			case "macvlan", "ipvlan":
				if hostID < 0 {
					if hostID, err = netlink.GetNetNsIdByFd(int(host.Fd())); err != nil {
						return fmt.Errorf("asking netns %s for the host's id: %w", file.Name(), err)
					}
				}
				if attrs.NetNsID < 0 || attrs.NetNsID != hostID {
					continue
				}
			case "device":
				if attrs.RawFlags&unix.IFF_LOOPBACK != 0 || attrs.EncapType != "ether" {
					continue
				}
				device.Kind = Physical
			default:
				continue
			}
			devices = append(devices, device)
		}
		return nil
	})
	return devices, err
}
