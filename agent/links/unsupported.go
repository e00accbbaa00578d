package links

import (
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// maxForeignScans limits how many namespaces without an observed interface one resync scans.
const maxForeignScans = 256

// unsupported finds the pod devices that have no observable host end, so that the status lists them.
type unsupported struct {
	found []Interface
	// foreign are the namespaces that no observed interface leads to, by inode.
	foreign map[uint64]foreign
	lists   int
}

type foreign struct {
	path    string
	scans   int
	devices []netns.Device // at the last scan
}

// list finds netkit devices of the host that are not observed. In namespaces whose inode is not in observed it finds macvlan and
// ipvlan devices on the host's devices, and physical devices (SR-IOV). It scans such a netns twice,
// because a new one may not have its devices yet, and then at every tenth list: a node may have hundreds.
func (u *unsupported) list(links []netlink.Link, refs []netns.Ref, observed map[uint64]bool) {
	u.found = nil
	for _, link := range links {
		netkit, ok := link.(*netlink.Netkit)
		if attrs := link.Attrs(); ok && attrs.NetNsID >= 0 && whyUnobservable(netkit) != "" {
			u.found = append(u.found, Interface{Name: attrs.Name, Index: attrs.Index, State: Unsupported, Reason: whyUnobservable(netkit)})
		}
	}
	before, scans := u.foreign, 0
	u.foreign = make(map[uint64]foreign, len(before))
	for _, ref := range refs {
		if observed[ref.Inode] {
			continue
		}
		f := before[ref.Inode]
		if f.path != ref.Path {
			f = foreign{path: ref.Path}
		}
		if (f.scans < 2 || (u.lists+int(ref.Inode))%scansApart == 0) && scans < maxForeignScans {
			scans++
			f.scans++
			f.devices = foreignDevices(ref)
		}
		u.foreign[ref.Inode] = f
		for _, device := range f.devices {
			u.found = append(u.found, Interface{
				Name: device.Name, Index: device.Index, State: Unsupported, Netns: ref,
				Reason: device.Kind + " devices cannot be observed",
			})
		}
	}
	u.lists++
}

// whyUnobservable returns why a netkit device of the host is not observed, nothing if it is.
func whyUnobservable(netkit *netlink.Netkit) string {
	if !netkit.IsPrimary() { // programs are attached to both ends by the primary one (drivers/net/netkit.c)
		return "the primary end of this netkit pair is not on the node"
	}
	return ""
}

func foreignDevices(ref netns.Ref) []netns.Device {
	file, err := os.Open(ref.Path)
	if err != nil {
		return nil
	}
	defer file.Close()
	devices, err := netns.DevicesWithoutHostEnd(file)
	if err != nil {
		return nil // it went away
	}
	if ref.Name == "" {
		// A netns without a name may be the root of another machine, as in a test.
		devices = slices.DeleteFunc(devices, func(d netns.Device) bool { return d.Kind == netns.Physical })
	}
	return devices
}
