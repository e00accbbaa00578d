package observe

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

// maxHostKeys limits the node's own addresses in their networks: each is leased to other nodes. make scale plays nodes with as many. They
// take at most a quarter of the table of bindings, because no pod's binding displaces one of them.
const maxHostKeys = 4096

// Own is the addresses of the node itself. It must not know what is in pods.
type Own struct {
	opts   *Options
	config *config.Config

	listedBefore bool // the addresses have been listed
	stale        bool // their networks may be others now
	listed       []links.HostAddress
	gossip       links.HostAddress // the one at which the node receives gossip, if it has a subnet
	keys         []hostAddress
	omitted      int             // how many of the listed addresses have not all of their keys, see maxHostKeys
	parents      map[string]bool // the devices by which interfaces send, by name; true if the configuration has no network for one of these
	bridges      map[string]bool // those that primary interfaces are ports of, by name
	secondary    map[int]bool    // by ifindex, the interfaces that are not the primary ones of their pods
}

// hostAddress is an address of the node itself in its network.
type hostAddress struct {
	key   detector.Key
	place detector.Place
	links.HostAddress
}

// carriesGossip reports whether a device is the one by which the nodes reach each other on a segment.
func (h *Own) carriesGossip(device string) bool {
	return h.gossip.Subnet.IsValid() && h.gossip.Device == device
}

// find finds the networks of the node's addresses, with the set of their keys, and counts the addresses that are omitted because there are
// too many: never the one at which the node receives gossip, and its main ones come first in the list. An address on several devices counts once in
// each network; one on the host end of a secondary interface is not the node's in the networks of pods.
func (h *Own) find(list []links.HostAddress) (keys []hostAddress, known map[detector.Key]bool, omitted int) {
	known = make(map[detector.Key]bool)
	lacking := make(map[netip.Addr]bool)
	limit := min(maxHostKeys, h.config.Limits().Bindings/4)
	add := func(key detector.Key, place detector.Place, address links.HostAddress) {
		switch {
		case known[key] || h.secondary[address.Index]:
		case len(keys) == limit:
			lacking[address.IP] = true
		default:
			known[key] = true
			keys = append(keys, hostAddress{key, place, address})
		}
	}
	for _, address := range list {
		if address.IP == h.opts.GossipAddress {
			add(hostKey(h.config, address), h.place(address), address)
		}
	}
	for _, address := range list {
		add(hostKey(h.config, address), h.place(address), address)
	}
	for _, address := range list { // after all others, which they must not displace
		if key, ok := h.segmentKey(address); ok {
			add(key, h.secondPlace(key), address)
		}
	}
	return keys, known, len(lacking)
}

// place returns where an address of the node is: on the segment that joins the nodes, also as a virtual address on a macvlan device, or on a
// bridge of pods.
func (h *Own) place(address links.HostAddress) detector.Place {
	switch {
	case perNode.Contains(address.IP):
	case h.carriesGossip(address.Device) || address.Parent != "" && h.carriesGossip(address.Parent):
		if !h.config.Asks() {
			return detector.PlaceUnasked
		}
		return detector.PlaceUplink
	case h.config.Exclusive(address.IP) && h.gossip.Subnet.IsValid(): // where it is nobody is asked
		return detector.PlaceUnasked
	case h.bridges[address.Device]:
		return detector.PlaceBridge
	}
	return 0
}

// perNode is a range of which each node has the same address on the device that carries gossip: OVN-Kubernetes masquerades by it.
var perNode = netip.MustParsePrefix("fd69::/112")

// secondPlace returns where an address of the node is in the network of pods that send by its device.
func (h *Own) secondPlace(key detector.Key) detector.Place {
	if h.config.Infers(key.Network) {
		return detector.PlaceSecond
	}
	return 0
}

// Segment returns the address of the node on the segment that joins the nodes, false if it has none.
func (h *Own) Segment() (links.HostAddress, bool) { return h.gossip, h.gossip.Subnet.IsValid() }

// Segments returns the devices behind which there are other nodes, or may be: none if the node is alone.
func (h *Own) Segments() (devices []string) {
	if !h.gossip.Subnet.IsValid() || !h.config.Asks() {
		return nil
	}
	devices = []string{h.gossip.Device}
	for _, parent := range slices.Sorted(maps.Keys(h.parents)) {
		if h.parents[parent] && !h.carriesGossip(parent) && h.config.Infers(config.SegmentNetwork(parent)) {
			devices = append(devices, parent)
		}
	}
	return devices
}

// DeviceOf returns the device behind which the segment of a network is.
func (h *Own) DeviceOf(network string) string {
	if device, ok := strings.CutPrefix(network, config.SegmentNetwork("")); ok {
		return device
	}
	return h.gossip.Device
}

// Prefix returns an address of the node in its network with the length of its subnet, the zero Prefix if there is none.
func (h *Own) Prefix(key detector.Key) netip.Prefix {
	for _, a := range h.keys {
		if a.key == key {
			return netip.PrefixFrom(a.IP, a.Subnet.Bits())
		}
	}
	return netip.Prefix{}
}

// OnSegment returns the keys that an address has on the segment behind a device, whoever has it there.
func (h *Own) OnSegment(device string, ip netip.Addr) (keys []detector.Key) {
	if !h.carriesGossip(device) {
		return []detector.Key{{Network: h.segment(device), IP: ip}}
	}
	keys = append(keys, hostKey(h.config, links.HostAddress{IP: ip, Device: h.gossip.Device}))
	if second := (detector.Key{Network: config.SubnetNetwork(h.gossip.Subnet), IP: ip}); !h.gossip.Subnet.Contains(ip) {
		keys = append(keys, second)
	}
	return keys
}

// IsOnSegment reports whether an address of a pod is one of the segment that joins the nodes.
func (h *Own) IsOnSegment(key detector.Key, segment links.HostAddress) bool {
	return segment.Subnet.Contains(key.IP) || key.Network == config.SubnetNetwork(segment.Subnet)
}

// segmentKey returns the second key of an address of the node: in the network of devices inside of pods that send by its device. Where
// the nodes receive gossip it has one if pods' addresses of its subnet are not in the network of the nodes, whether this node has
// such pods or not: another one may.
func (h *Own) segmentKey(address links.HostAddress) (detector.Key, bool) {
	key := detector.Key{Network: h.segment(address.Device), IP: address.IP}
	if h.carriesGossip(address.Device) {
		return key, !h.gossip.Subnet.Contains(address.IP)
	}
	_, ok := h.parents[address.Device]
	return key, ok
}

// follow finds out which devices the interfaces of pods send by, since the node's addresses there are in their networks, too, and
// which interfaces are secondary ones.
func (h *Own) follow(all interfaces) {
	parents, bridges, secondary := make(map[string]bool), make(map[string]bool), make(map[int]bool)
	for _, i := range all {
		switch {
		case i.Kind != "":
			parents[i.Master] = parents[i.Master] || i.Network() == config.SegmentNetwork(i.Master)
		case i.Primary() && i.Master != "" && i.Master != links.OpenVSwitch:
			bridges[i.Master] = true
		}
		secondary[i.Index] = !i.Primary()
	}
	h.stale = h.stale || !maps.Equal(parents, h.parents) || !maps.Equal(bridges, h.bridges)
	h.parents, h.bridges, h.secondary = parents, bridges, secondary
}

// followPrimary has the networks of the node's own addresses found again if an interface has become primary, or is not any more, and
// any of them is on its host end.
func (h *Own) followPrimary(i *Interface, before bool) {
	h.stale = h.stale || i.Origin.primary() != before &&
		slices.ContainsFunc(h.listed, func(a links.HostAddress) bool { return a.Index == i.Index })
}

// segment names the segment behind a device of the node by which devices inside of pods send (macvlan, ipvlan). The
// one that carries gossip joins the nodes, so it is cluster-wide, and named by its subnet, because its device may have another name
// on each node. Any other is a network of this node only: nothing says which nodes it joins, but the configuration can.
func (h *Own) segment(parent string) string {
	if h.carriesGossip(parent) {
		return config.SubnetNetwork(h.gossip.Subnet)
	}
	return config.SegmentNetwork(parent)
}

// set sets the node's own addresses.
func (h *Own) set(list []links.HostAddress) {
	h.listed, h.gossip = list, links.HostAddress{}
	if n := slices.IndexFunc(list, func(a links.HostAddress) bool {
		return a.IP == h.opts.GossipAddress && a.Subnet.IsValid() && !a.Subnet.IsSingleIP()
	}); n >= 0 {
		h.gossip = list[n]
	}
}

// move moves the node's own addresses into the networks that they are in now. It observes all, or those only that are new in a
// network, or are on another device there.
func (h *Own) move(observeAll bool, now time.Time) (all []Observation) {
	present, kept, omitted := h.find(h.listed)
	type where struct {
		index int
		place detector.Place
	}
	before := make(map[detector.Key]where, len(h.keys))
	for _, old := range h.keys {
		before[old.key] = where{old.Index, old.place}
		if !kept[old.key] {
			all = append(all, withdrawn(old.key, h.opts.Host, "the address left the node, or its network"))
		}
	}
	h.keys, h.omitted, h.stale = present, omitted, false
	for _, address := range present {
		if was, known := before[address.key]; observeAll || !known || was != (where{address.Index, address.place}) {
			all = append(all, h.observation(address, now))
		}
	}
	return all
}

// observation makes the sighting of one of the node's own addresses.
func (h *Own) observation(address hostAddress, at time.Time) Observation {
	s := detector.Sighting{
		Key: address.key,
		Holder: detector.Holder{
			ID: h.opts.Host, Interface: detector.Interface{Ifindex: uint32(address.Index)}, InterfaceName: address.Device,
			NetnsName: "host", Place: address.place,
		},
		Evidence: detector.Host, Answer: true, At: at, FoundAtStart: !h.listedBefore,
	}
	if len(address.MAC) == len(s.Holder.MAC) {
		copy(s.Holder.MAC[:], address.MAC)
	}
	return Observation{Kind: Seen, Sighting: s}
}

// Find makes the sighting of a key that is in a list of the node's addresses. It reports false if
// the key is not in the list.
func (h *Own) Find(list []links.HostAddress, key detector.Key, at time.Time) (Observation, bool) {
	for _, address := range list {
		if address.IP != key.IP {
			continue
		}
		if hostKey(h.config, address) == key {
			return h.observation(hostAddress{key, h.place(address), address}, at), true
		}
		if second, ok := h.segmentKey(address); ok && second == key {
			return h.observation(hostAddress{key, h.secondPlace(key), address}, at), true
		}
	}
	return Observation{}, false
}

// IPs returns the node's own addresses, sorted and without duplicates.
func (h *Own) IPs() (ips []netip.Addr) {
	for _, address := range h.keys {
		ips = append(ips, address.IP)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// Omitted counts the node's own addresses that are not compared, in all of their networks or some, because there are too many.
func (h *Own) Omitted() int { return h.omitted }
