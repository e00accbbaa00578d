package links

import (
	"context"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// uplinks is what a veth that leads out of the node is known by. Where the node is a
// container, each network that it is on has a veth like a pod's: what comes in there are
// the addresses of others. The node has an address in their subnet, or a bridge with the
// MAC and the default route that the veth had.
type uplinks struct {
	subnets map[int]bool
	macs    map[string]bool
	err     error // nothing is known
}

func findUplinks(out exits) uplinks {
	subnets, err := numbered()
	return uplinks{subnets, out.macs(), err}
}

func (u uplinks) include(index int, mac net.HardwareAddr) bool {
	return u.subnets[index] || u.macs[mac.String()]
}

// numbered returns the devices that have an address with a subnet, and not for
// themselves alone as the host ends of routed pods do.
func numbered() (map[int]bool, error) {
	addrs, err := netns.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	found := make(map[int]bool)
	for _, a := range addrs {
		if ones, bits := a.Mask.Size(); a.IP.IsGlobalUnicast() && ones < bits {
			found[a.LinkIndex] = true
		}
	}
	return found, nil
}

// outward is an interface that was found to lead out of the node.
type outward struct {
	name       string
	nsid, peer int
	mac        net.HardwareAddr
}

// hostChanged asks for a look at the node's own addresses, and at its uplinks when they
// are wanted next.
func (w *Watcher) hostChanged() { w.hostDirty, w.uplinks = true, nil }

// knownUplinks lists the uplinks once after each change of the node's addresses.
func (w *Watcher) knownUplinks() uplinks {
	if w.uplinks == nil {
		found := findUplinks(w.exits)
		if found.err != nil {
			w.log.Warn("looking for uplinks failed, trying again at the next resync", "error", found.err)
		}
		w.uplinks = &found
	}
	return *w.uplinks
}

// leadsOut judges an interface: it is an uplink's if its netns was looked for long enough
// and never seen. Runtimes give addresses with a subnet to pods' host ends, too.
func (w *Watcher) leadsOut(t *tracked) bool {
	if t.firstPeer != "" || t.tries < unseenAfter {
		return false
	}
	if _, found := w.places[t.nsid]; found {
		return false
	}
	known := w.knownUplinks()
	return known.err == nil && known.include(t.iface.Index, t.iface.MAC)
}

// removeOutward takes an interface off the list if it leads out of the node, and says
// whether it did.
func (w *Watcher) removeOutward(ctx context.Context, t *tracked) bool {
	if !w.leadsOut(t) {
		return false
	}
	w.outward[t.iface.Index] = outward{t.iface.Name, t.nsid, t.peer, t.iface.MAC}
	w.unobservedDirty = true
	w.log.Info("an interface is an uplink of the node and leads to no pod", "interface", t.iface.Name)
	w.removeFor(ctx, t.iface.Index, "interface "+t.iface.Name+" leads out of the node")
	return true
}

// isOutward says whether a link was found to lead out of the node and is still the same.
func (w *Watcher) isOutward(link netlink.Link) bool {
	attrs := link.Attrs()
	before, ok := w.outward[attrs.Index]
	if !ok {
		return false
	}
	if !isPod(link, w.exits.devices) || before.nsid != attrs.NetNsID || before.peer != attrs.ParentIndex {
		w.forgetOutward(attrs.Index)
		return false
	}
	if before.name != attrs.Name {
		w.unobservedDirty = true
	}
	before.name, before.mac = attrs.Name, attrs.HardwareAddr
	w.outward[attrs.Index] = before
	return true
}

func (w *Watcher) forgetOutward(index int) {
	if _, ok := w.outward[index]; ok {
		delete(w.outward, index)
		w.unobservedDirty = true
	}
}

// takeBack follows those again whose netns was found after all, or that are uplinks no more.
func (w *Watcher) takeBack(ctx context.Context) {
	for index, o := range w.outward {
		if _, found := w.places[o.nsid]; !found {
			if known := w.knownUplinks(); known.err != nil || known.include(index, o.mac) {
				continue
			}
		}
		w.forgetOutward(index)
		if link, err := netlink.LinkByIndex(index); err == nil {
			w.listing = true
			w.upsert(ctx, link)
			w.listing = false
			w.poke() // it waits for its first look
		}
	}
}
