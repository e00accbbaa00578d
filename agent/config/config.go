// Package config owns the agent's configuration file: its schema and defaults, the
// strict reading of it, the questions the agent puts to it, and its reload.
//
// It knows nothing of interfaces, bindings or conflicts themselves: a question names
// an interface or an address, the answer is a network or a yes. Nothing is carried
// out here.
package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// DefaultNetwork is the cluster-wide network of primary pod interfaces and nodes.
const DefaultNetwork = "default"

// Scope says how far a network reaches.
type Scope string

// The scopes of a network. Addresses of a network with scope Node are compared with
// those of the same node only.
const (
	Cluster Scope = "cluster"
	Node    Scope = "node"
)

// Network is an L3 domain in which an address must be unique.
type Network struct {
	Name  string
	Scope Scope
	// Solicit says whether holders are asked for. Where they are not, nothing is ever
	// confirmed.
	Solicit bool
}

// Subject is a pod interface as the rules see it. What is unknown or absent is empty
// and matches no glob.
type Subject struct {
	// Interface is the name of the host-side device.
	Interface string
	// Peer is the name of the device inside the pod.
	Peer string
	// Bridge is the bridge, bond or VRF that the host side is a port of.
	Bridge string
}

// Config is one state of the configuration. The zero value and a nil pointer are
// valid and mean that nothing was configured. A Config is never changed once made, so
// it may be used concurrently.
type Config struct {
	rules    []rule
	networks []Network // in the order of the file
	byName   map[string]Network
	shared   []netip.Prefix // disjoint and sorted
	ignored  []glob
	limits   Limits
}

// Default returns the configuration of an agent without a file.
func Default() *Config { return new(Config) }

// Networks returns the networks that the file names, in its order.
func (c *Config) Networks() []Network {
	if c == nil {
		return nil
	}
	return slices.Clone(c.networks)
}

// Network returns the network that the rules put an address behind a pod interface
// into, and false where no rule does: it then is in the network that exists by itself.
// The first rule that matches wins. The name is without VLAN tags. It never allocates.
func (c *Config) Network(s Subject, ip netip.Addr) (Network, bool) {
	if c == nil {
		return Network{}, false
	}
	ip = plain(ip)
	for i := range c.rules {
		if r := &c.rules[i]; r.holds(ip) && r.matches(s) {
			return r.network, true
		}
	}
	return Network{}, false
}

// SameRules says whether the same rules match two interfaces, so that every address is in
// the same network behind either. It never allocates.
func (c *Config) SameRules(a, b Subject) bool {
	if c == nil || a == b {
		return true
	}
	for i := range c.rules {
		if r := &c.rules[i]; r.matches(a) != r.matches(b) {
			return false
		}
	}
	return true
}

// HostNetwork is [Config.Network] for an address of the node itself on a device. The
// device may be the port, named by interfaces, or the bridge itself, named by bridges:
// one of the two must match where a rule has either. A rule for peers is about
// pods only. It never allocates.
func (c *Config) HostNetwork(device string, ip netip.Addr) (Network, bool) {
	if c == nil {
		return Network{}, false
	}
	ip = plain(ip)
	for i := range c.rules {
		if r := &c.rules[i]; r.holds(ip) && r.matchesHost(device) {
			return r.network, true
		}
	}
	return Network{}, false
}

// Solicits says whether holders of addresses in the network are asked for. A VLAN
// inside a network is as the network: "storage.100" as "storage". It never allocates.
func (c *Config) Solicits(network string) bool {
	n, ok := c.named(network)
	return !ok || n.Solicit
}

// Scope says how far the network reaches, with its VLANs. One that the file does not
// name reaches over the cluster if it is the default one, else over its node.
func (c *Config) Scope(network string) Scope {
	if n, ok := c.named(network); ok {
		return n.Scope
	}
	return ownScope(stripVLANs(network))
}

// Shared says whether the address may lawfully have many holders. It never allocates.
func (c *Config) Shared(ip netip.Addr) bool {
	if c == nil || len(c.shared) == 0 {
		return false
	}
	ip = plain(ip)
	// They are disjoint: only the last that begins at or before the address can hold it.
	n, found := slices.BinarySearchFunc(c.shared, ip, func(p netip.Prefix, ip netip.Addr) int {
		return p.Addr().Compare(ip)
	})
	return found || n > 0 && c.shared[n-1].Contains(ip)
}

// Ignored says whether the interface, by its host-side name, is not to be observed.
func (c *Config) Ignored(interfaceName string) bool {
	return c != nil && anyMatch(c.ignored, interfaceName)
}

// Limits returns the limits, those that the file leaves out with their defaults.
func (c *Config) Limits() Limits {
	if c == nil {
		return DefaultLimits()
	}
	return c.limits.withDefaults()
}

// named finds the properties of a network by its name, with or without VLAN tags.
func (c *Config) named(network string) (Network, bool) {
	if c == nil || len(c.byName) == 0 {
		return Network{}, false
	}
	if n, ok := c.byName[network]; ok {
		return n, true
	}
	n, ok := c.byName[stripVLANs(network)]
	return n, ok
}

// stripVLANs takes up to two tags off the name of a network: "default.200.100".
func stripVLANs(network string) string {
	for range 2 {
		base, tagged := cutTag(network)
		if !tagged {
			break
		}
		network = base
	}
	return network
}

// cutTag takes ".<number>" off the end of a name.
func cutTag(name string) (base string, tagged bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || dot+1 == len(name) {
		return name, false
	}
	for _, digit := range []byte(name[dot+1:]) {
		if digit < '0' || digit > '9' {
			return name, false
		}
	}
	return name[:dot], true
}

// ownScope is the scope of a network that exists by itself: secondary networks and the
// bridges of local container engines have the same subnets on many nodes.
func ownScope(network string) Scope {
	if network == DefaultNetwork {
		return Cluster
	}
	return Node
}

// plain is the form in which prefixes and addresses are compared.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// disjoint sorts prefixes and drops those within others.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, p := range prefixes {
		if n := len(kept); n == 0 || !kept[n-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept
}
