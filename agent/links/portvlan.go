package links

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// defaultVLAN is that of a bridge's ports for which nobody said anything
// (default_pvid, net/bridge/br_vlan.c).
const defaultVLAN = 1

// bridges is what the kernel tells of them. Not every kernel knows VLANs there.
type bridges struct {
	// filters says whether the device is a bridge that tells VLANs apart.
	filters func(name string) (bool, error)
	// vlans lists the VLANs of all ports of all bridges, by ifindex.
	vlans func() (map[int32][]*nl.BridgeVlanInfo, error)
}

func filtersVLANs(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return false, fmt.Errorf("looking at bridge %s: %w", name, err)
	}
	bridge, ok := link.(*netlink.Bridge)
	return ok && bridge.VlanFiltering != nil && *bridge.VlanFiltering, nil
}

// untaggedVLAN is the VLAN of untagged packets on a bridge port, 0 for the default one.
func untaggedVLAN(vlans []*nl.BridgeVlanInfo) uint16 {
	for _, v := range vlans {
		if v.PortVID() && v.Vid != defaultVLAN {
			return v.Vid
		}
	}
	return 0
}

// inPort says whether its port's VLAN matters: secondary interfaces of several networks may
// be ports of one bridge, and told apart by nothing else; the primary ones are all in one
// network.
func (t *tracked) inPort() bool { return t.firstPeer != PrimaryPeer && t.iface.Master != "" }

// duePorts lists the interfaces whose port's VLAN may be another one now.
func (w *Watcher) duePorts() []*tracked {
	var due []*tracked
	for _, t := range w.tracked {
		if t.iface.Seen && t.portDirty {
			due = append(due, t)
		}
	}
	return due
}

// lookAtPorts finds out the VLANs of these interfaces and tells the agent of differences,
// and of interfaces that it has not heard of. What fails waits for the next resync.
func (w *Watcher) lookAtPorts(ctx context.Context, due []*tracked) {
	began := time.Now()
	vlans := w.portVLANs(due)
	// A pod whose device goes up and down makes events of its port.
	w.nextPorts = time.Now().Add(max(lookPause, lookShare*time.Since(began)))
	for _, t := range due {
		before := t.iface.PortVLAN
		if vlan, known := vlans[t.iface.Index]; known {
			t.iface.PortVLAN = vlan
		}
		t.portDirty = false
		if !t.announced || t.iface.PortVLAN != before {
			w.emitInterface(ctx, t)
		}
	}
}

// portVLANs returns the VLANs of the interfaces' untagged packets by ifindex, without those
// that cannot be known now. One list serves all: it holds the kernel's lock on all devices,
// and takes as long as there are ports.
func (w *Watcher) portVLANs(due []*tracked) map[int]uint16 {
	found := make(map[int]uint16)
	list := sync.OnceValues(w.bridges.vlans)
	filters := make(map[string]func() (bool, error))
	for _, t := range due {
		index, master := t.iface.Index, t.iface.Master
		if !t.inPort() {
			found[index] = 0
			continue
		}
		if filters[master] == nil {
			filters[master] = sync.OnceValues(func() (bool, error) { return w.bridges.filters(master) })
		}
		tells, err := filters[master]()
		var ports map[int32][]*nl.BridgeVlanInfo
		if tells {
			ports, err = list()
		}
		if err != nil {
			w.log.Debug("the port's VLAN is not known now", "interface", t.iface.Name, "error", err)
			continue
		}
		found[index] = untaggedVLAN(ports[int32(index)])
	}
	return found
}
