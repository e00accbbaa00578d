package audit

import (
	"net/netip"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
)

// NodeOf returns what is known of the node's interfaces. Call it in the goroutine that owns the parts.
func NodeOf(table *observe.Table, bindings []detector.Binding) Node {
	n := Node{Foreign: make(map[netip.Addr]bool)}
	for _, b := range bindings {
		i := table.Interface(b.Holder.Interface)
		if i == nil || i.Holder != b.Holder.ID || table.Config().Shared(b.Key.IP) || b.Evidence <= detector.Forwarded || b.Evidence >= detector.Host {
			continue
		}
		if i.Pod.Sandbox.ID == "" {
			n.Foreign[b.Key.IP] = true
		}
		// What a pod only sends from, forwards to or has learned from a router is not IPAM's: it was given the address, or
		// somebody has added it to eth0.
		if i.Seen && i.View.Configured(b.Key.IP) || b.Holder.Given == detector.GivenYes {
			n.Live = append(n.Live, Live{
				IP: b.Key.IP, Interface: i.Name, Netns: i.NetnsName(), Pod: i.Pod.Pod, Sandbox: i.Pod.Sandbox.ID,
				Given: b.Holder.Given, Network: NetworkOf(i),
			})
		}
	}
	for i := range table.All() {
		if !i.Seen {
			n.Hidden = i.Name
		}
		if i.Pod.Sandbox.ID == "" {
			for _, a := range i.View.Addresses {
				n.Foreign[a.IP] = true
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

// NetworkOf returns the network of CNI's configuration that an interface is in, empty if that is not known.
func NetworkOf(i *observe.Interface) string {
	if i.Origin.Role != observe.PrimaryByResult || !i.Pod.Result.Names(i.Name) {
		return ""
	}
	return i.Pod.Result.Network
}
