package observe

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

// maxHostKeys limits the node's own addresses in their networks: each is leased to other nodes. make scale plays nodes with as many. They
// take at most a quarter of the table of bindings, because no pod's binding displaces one of them.
const maxHostKeys = 4096

// hostAddresses are the addresses of the node itself.
type hostAddresses struct {
	listedBefore bool // the addresses have been listed
	stale        bool // their networks may be others now
	listed       []links.HostAddress
	gossip       links.HostAddress // the one at which the node receives gossip, if it has a subnet
	keys         []hostAddress
	omitted      int             // how many of the listed addresses have not all of their keys, see maxHostKeys
	parents      map[string]bool // the devices by which interfaces send, by name
}

// hostAddress is an address of the node itself in its network.
type hostAddress struct {
	key detector.Key
	links.HostAddress
}

// carriesGossip reports whether a device is the one by which the nodes reach each other on a segment.
func (h *hostAddresses) carriesGossip(device string) bool {
	return h.gossip.Subnet.IsValid() && h.gossip.Device == device
}

// hostKeys finds the networks of the node's addresses, with the set of their keys, and counts the addresses that are omitted because there are too many: never the one
// at which the node receives gossip, and its main ones come first in the list. An address on several devices counts once in
// each network; one on the host end of a secondary interface is not the node's in the networks of pods.
func (t *Table) hostKeys(list []links.HostAddress) (keys []hostAddress, known map[detector.Key]bool, omitted int) {
	known = make(map[detector.Key]bool)
	secondary, lacking := make(map[int]bool), make(map[netip.Addr]bool)
	for _, i := range t.interfaces {
		secondary[i.Index] = !i.Primary()
	}
	limit := min(maxHostKeys, t.config.Limits().Bindings/4)
	add := func(key detector.Key, address links.HostAddress) {
		switch {
		case known[key] || secondary[address.Index]:
		case len(keys) == limit:
			lacking[address.IP] = true
		default:
			known[key] = true
			keys = append(keys, hostAddress{key, address})
		}
	}
	for _, address := range list {
		if address.IP == t.GossipAddress {
			add(hostKey(t.config, address), address)
		}
	}
	for _, address := range list {
		add(hostKey(t.config, address), address)
	}
	for _, address := range list { // after all others, which they must not displace
		if key, ok := t.segmentKey(address); ok {
			add(key, address)
		}
	}
	return keys, known, len(lacking)
}

// segmentKey returns the second key of an address of the node: in the network of devices inside of pods that send by its device. Where
// the nodes receive gossip it has one if pods' addresses of its subnet are not in the network of the nodes, whether this node has
// such pods or not: another one may.
func (t *Table) segmentKey(address links.HostAddress) (detector.Key, bool) {
	key := detector.Key{Network: t.parentNetwork(address.Device), IP: address.IP}
	if t.host.carriesGossip(address.Device) {
		return key, !t.host.gossip.Subnet.Contains(address.IP)
	}
	return key, t.host.parents[address.Device]
}

// updateParents finds the devices of the node again by which interfaces send: the node's addresses there are in their networks, too.
func (t *Table) updateParents() {
	parents := make(map[string]bool)
	for _, i := range t.interfaces {
		if i.Kind != "" {
			parents[i.Master] = true
		}
	}
	t.host.stale = t.host.stale || !maps.Equal(parents, t.host.parents)
	t.host.parents = parents
}

// followPrimary has the networks of the node's own addresses found again if an interface has become primary, or is not any more, and
// any of them is on its host end.
func (t *Table) followPrimary(i *Interface, before bool) {
	t.host.stale = t.host.stale || i.Origin.primary() != before &&
		slices.ContainsFunc(t.host.listed, func(a links.HostAddress) bool { return a.Index == i.Index })
}

// setHost sets the node's own addresses, and observes all of them.
func (t *Table) setHost(list []links.HostAddress, now time.Time) (all []Observation) {
	t.host.listed, t.host.gossip = list, links.HostAddress{}
	if n := slices.IndexFunc(list, func(a links.HostAddress) bool {
		return a.IP == t.GossipAddress && a.Subnet.IsValid() && !a.Subnet.IsSingleIP()
	}); n >= 0 {
		t.host.gossip = list[n]
	}
	for _, i := range t.interfaces {
		if i.Kind != "" {
			t.rebase(i)
		}
	}
	return t.moveHost(true, now)
}

// moveHost moves the node's own addresses into the networks that they are in now. It observes all, or those only that are new in a
// network, or are on another device there.
func (t *Table) moveHost(observeAll bool, now time.Time) (all []Observation) {
	present, kept, omitted := t.hostKeys(t.host.listed)
	before := make(map[detector.Key]int, len(t.host.keys))
	for _, old := range t.host.keys {
		before[old.key] = old.Index
		if !kept[old.key] {
			all = append(all, withdrawn(old.key, t.Host, "the address left the node, or its network"))
		}
	}
	t.host.keys, t.host.omitted, t.host.stale = present, omitted, false
	for _, address := range present {
		if index, known := before[address.key]; observeAll || !known || index != address.Index {
			all = append(all, t.hostObservation(address, now))
		}
	}
	return all
}

// hostObservation makes the sighting of one of the node's own addresses.
func (t *Table) hostObservation(address hostAddress, at time.Time) Observation {
	s := detector.Sighting{
		Key: address.key,
		Holder: detector.Holder{
			ID: t.Host, Interface: detector.Interface{Ifindex: uint32(address.Index)}, InterfaceName: address.Device,
			NetnsName: "host",
		},
		Evidence: detector.Host, Answer: true, At: at, FoundAtStart: !t.host.listedBefore,
	}
	if len(address.MAC) == len(s.Holder.MAC) {
		copy(s.Holder.MAC[:], address.MAC)
	}
	return Observation{Kind: Seen, Sighting: s}
}

// FindHost makes the sighting of a key that is in a list of the node's addresses. It reports false if
// the key is not in the list.
func (t *Table) FindHost(list []links.HostAddress, key detector.Key, at time.Time) (Observation, bool) {
	for _, address := range list {
		if address.IP != key.IP {
			continue
		}
		if second, ok := t.segmentKey(address); hostKey(t.config, address) == key || ok && second == key {
			return t.hostObservation(hostAddress{key, address}, at), true
		}
	}
	return Observation{}, false
}

// HostIPs returns the node's own addresses, sorted and without duplicates.
func (t *Table) HostIPs() (ips []netip.Addr) {
	for _, address := range t.host.keys {
		ips = append(ips, address.IP)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// HostOmitted counts the node's own addresses that are not compared, in all of their networks or some, because there are too many.
func (t *Table) HostOmitted() int { return t.host.omitted }
