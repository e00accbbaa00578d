package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
)

// NodeOf returns what is known of the node's interfaces, in a fixed order. bindings returns those that it is asked for. Call it in the goroutine
// that owns the parts.
func NodeOf(table *observe.Table, bindings func(keep func(*detector.Binding) bool) []detector.Binding) Node {
	all := slices.SortedFunc(table.All(), func(x, y *observe.Interface) int { return cmp.Compare(x.Index, y.Index) })
	addresses := 0
	for _, i := range all {
		addresses += len(i.View.Addresses)
	}
	n := Node{Live: make([]Live, 0, addresses), Foreign: make(map[netip.Addr]bool)}
	lists := func(i *observe.Interface, ip netip.Addr) bool {
		return slices.ContainsFunc(i.View.Addresses, func(a netns.Address) bool { return a.IP == ip })
	}
	// The guest of a virtual machine has an address that the pod was given and its kernel does not list.
	guests := func(i *observe.Interface, b *detector.Binding) bool {
		return b.Holder.Given == detector.GivenYes && (!i.Seen || !i.View.Configured(b.Key.IP))
	}
	for _, b := range bindings(func(b *detector.Binding) bool {
		i := table.Interface(b.Holder.Interface)
		return i != nil && i.Holder == b.Holder.ID && b.Evidence.Counts() && b.Evidence < detector.Host &&
			(i.Pod.Sandbox.ID == "" && !lists(i, b.Key.IP) || guests(i, b)) && !table.Config().Shared(b.Key.IP)
	}) {
		i := table.Interface(b.Holder.Interface)
		if i.Pod.Sandbox.ID == "" {
			n.Foreign[b.Key.IP] = true
		}
		if guests(i, &b) {
			n.Live = append(n.Live, liveOf(i, b.Key.IP))
		}
	}
	for _, i := range all {
		if !i.Seen {
			n.Hidden = i.Name
		}
		for _, a := range i.View.Addresses {
			if i.Pod.Sandbox.ID == "" {
				n.Foreign[a.IP] = true
			}
			// What a pod only sends from, forwards to or has learned from a router is not IPAM's. What somebody has given to
			// its eth0 is, also if it has not answered lately.
			if a.Valid && a.Where == netns.OnPeer && !a.Dynamic && !table.Config().Shared(a.IP) {
				l := liveOf(i, a.IP)
				l.Drill = l.Given != detector.GivenYes && detector.Key{Network: i.Network(), IP: a.IP}.IsForDrills()
				n.Live = append(n.Live, l)
			}
		}
	}
	for _, device := range table.Unobserved() {
		if device.State != links.Uplink {
			n.Hidden = device.Name
		}
	}
	return n
}

func liveOf(i *observe.Interface, ip netip.Addr) Live {
	return Live{
		IP: ip, Interface: i.Name, Netns: i.Netns.Label(), Pod: i.Pod.Pod, Sandbox: i.Pod.Sandbox.ID, Given: i.Given(ip), Network: NetworkOf(i),
		Secondary: i.Origin.Role == observe.SecondaryByResult,
	}
}

// NetworkOf returns the network of CNI's configuration that an interface is in, empty if that is not known.
func NetworkOf(i *observe.Interface) string {
	if i.Origin.Role != observe.PrimaryByResult || !i.Pod.Result.Names(i.Name) {
		return ""
	}
	return i.Pod.Result.Network
}
