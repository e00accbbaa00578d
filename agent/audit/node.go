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

// NodeOf returns what is known of the node's interfaces, in a fixed order. bindings calls a function for each. Call it in the goroutine that owns
// the parts.
func NodeOf(table *observe.Table, bindings func(func(detector.Key, *detector.Holder, detector.Evidence))) Node {
	all := slices.SortedFunc(table.All(), func(x, y *observe.Interface) int { return cmp.Compare(x.Index, y.Index) })
	addresses := 0
	for _, i := range all {
		addresses += len(i.View.Addresses)
	}
	n := Node{Live: make([]Live, 0, addresses), Foreign: make(map[netip.Addr]bool)}
	bindings(func(key detector.Key, h *detector.Holder, evidence detector.Evidence) {
		i := table.Interface(h.Interface)
		if i == nil || i.Holder != h.ID || table.Config().Shared(key.IP) || !evidence.Counts() || evidence >= detector.Host {
			return
		}
		if i.Pod.Sandbox.ID == "" {
			n.Foreign[key.IP] = true
		}
		// The guest of a virtual machine has an address that the pod was given and its kernel does not list.
		if h.Given == detector.GivenYes && (!i.Seen || !i.View.Configured(key.IP)) {
			n.Live = append(n.Live, liveOf(i, key.IP))
		}
	})
	slices.SortFunc(n.Live, func(x, y Live) int { return cmp.Or(x.IP.Compare(y.IP), cmp.Compare(x.Interface, y.Interface)) })
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
