package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

// maxHostKeys limits the node's own addresses. A node with more has service addresses on its devices.
const maxHostKeys = 64

// hostAddresses are the addresses of the node itself.
type hostAddresses struct {
	listedBefore bool // the addresses have been listed
	stale        bool // their networks may be others now
	listed       []links.HostAddress
	keys         []hostAddress
	parents      map[string]int // how many interfaces send by a device, by its name
}

// hostAddress is an address of the node itself in its network.
type hostAddress struct {
	key detector.Key
	links.HostAddress
}

// hostKeys finds the networks of the node's addresses. An address on several devices counts once in
// each network; one on the host end of a secondary interface is not the node's in the networks of pods.
func (t *Table) hostKeys(list []links.HostAddress) []hostAddress {
	var keys []hostAddress
	known, secondary := make(map[detector.Key]bool), make(map[int]bool)
	for _, i := range t.interfaces {
		secondary[i.Index] = !i.Primary()
	}
	for _, address := range list {
		for _, key := range t.keysOf(address) {
			if known[key] || len(keys) == maxHostKeys || secondary[address.Index] {
				continue
			}
			known[key] = true
			keys = append(keys, hostAddress{key, address})
		}
	}
	return keys
}

// keysOf returns the keys of an address of the node. On a device by which devices inside of pods send, it has one in their network, too,
// unless their addresses of that subnet are in the network of the nodes.
func (t *Table) keysOf(address links.HostAddress) []detector.Key {
	keys := []detector.Key{hostKey(t.config, address)}
	if t.host.parents[address.Device] > 0 {
		if network := t.parentNetwork(address.Device); !isSubnet(network) {
			keys = append(keys, detector.Key{Network: network, IP: address.IP})
		}
	}
	return keys
}

// addParent counts the interfaces that send by a device of the node. n is 1 or -1.
func (t *Table) addParent(i *links.Interface, n int) {
	if i.Kind == "" {
		return
	}
	before := t.host.parents[i.Master]
	t.host.parents[i.Master] = before + n
	if before+n == 0 {
		delete(t.host.parents, i.Master)
	}
	t.host.stale = t.host.stale || before == 0 || before+n == 0
}

// setHost updates the bindings of the node's own addresses.
func (t *Table) setHost(list []links.HostAddress, now time.Time) (all []Observation) {
	t.host.listed = list
	present := t.hostKeys(list)
	for _, old := range t.host.keys {
		if !slices.ContainsFunc(present, func(a hostAddress) bool { return a.key == old.key }) {
			all = append(all, withdrawn(old.key, t.Host, "the address left the node, or its network"))
		}
	}
	t.host.keys, t.host.stale = present, false
	for _, address := range present {
		all = append(all, t.hostObservation(address, now))
	}
	for _, i := range t.interfaces {
		if i.Kind != "" {
			t.rebase(i)
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
		if slices.Contains(t.keysOf(address), key) {
			return t.hostObservation(hostAddress{key, address}, at), true
		}
	}
	return Observation{}, false
}

// HostIPs returns the node's own addresses, sorted and without duplicates.
func (t *Table) HostIPs() []netip.Addr {
	var ips []netip.Addr
	for _, address := range t.host.keys {
		ips = append(ips, address.IP)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}
