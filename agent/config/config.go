// Package config owns the agent's configuration file: its format, its defaults, strict parsing, and
// reload. It determines to which network an address belongs, and which interfaces and addresses are
// exempt. It must not know bindings or conflicts.
package config

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// DefaultNetwork is the cluster-wide network of primary pod interfaces and nodes.
const DefaultNetwork = "default"

// SubnetNetwork names a segment that joins nodes, by its subnet. It has scope [Cluster].
func SubnetNetwork(subnet netip.Prefix) string { return subnet.Masked().String() }

func isSubnetNetwork(network string) bool {
	_, err := netip.ParsePrefix(network)
	return err == nil
}

// Scope says which addresses are compared: those of the cluster or of one node.
type Scope string

// The scopes of a network.
const (
	Cluster Scope = "cluster"
	Node    Scope = "node"
)

// Network is an L3 domain in which an address must be unique.
type Network struct {
	Name    string
	Scope   Scope
	Solicit bool // whether holders are probed; without probes nothing is confirmed
}

// Subject is what rules match of a pod interface. An empty field matches no pattern.
type Subject struct {
	Interface string // name of the host-side device
	Peer      string // name of the device inside the pod
	Bridge    string // bridge, bond or VRF that the host side is a port of
}

// Limits are the limits of what the agent keeps and sends, on one node.
type Limits struct {
	Bindings             int `yaml:"bindings"`             // size of the binding table
	BindingsPerInterface int `yaml:"bindingsPerInterface"` // the share of one interface in it
	History              int `yaml:"history"`              // resolved conflicts that are kept
	VerifyPerSecond      int `yaml:"verifyPerSecond"`      // probes that verify suspicions
	RefreshPerSecond     int `yaml:"refreshPerSecond"`     // probes to silent addresses
}

// Config is one state of the configuration. The zero value and a nil pointer are valid and mean the
// defaults. A Config is immutable and safe for concurrent use. Only Networks allocates.
type Config struct {
	rules             []entry   // those with a match
	networks          []Network // in the order of the file
	byName            map[string]Network
	shared, exclusive []addressOrCIDR
	segments          segments
	ignored           []pattern
	limits            Limits // zero for the defaults
}

// Networks returns the networks in the file, in its order.
func (c *Config) Networks() []Network { return slices.Clone(cmp.Or(c, &none).networks) }

// Network returns the network that the first matching rule assigns to an address behind a pod interface,
// without VLAN tags, or false if no rule matches.
func (c *Config) Network(s Subject, ip netip.Addr) (Network, bool) {
	return c.find(ip, func(m *match) bool { return m.matches(s) })
}

// HostNetwork is [Config.Network] for an address of the node itself on a device. If a rule has the keys
// interfaces or bridges, one of them must match the device. A rule with peers applies to pods only.
func (c *Config) HostNetwork(device string, ip netip.Addr) (Network, bool) {
	return c.find(ip, func(m *match) bool { return m.matchesHost(device) })
}

func (c *Config) find(ip netip.Addr, matches func(*match) bool) (Network, bool) {
	for _, rule := range cmp.Or(c, &none).rules {
		if m := rule.Match; (len(m.CIDRs) == 0 || containsIP(m.CIDRs, ip)) && matches(m) {
			return c.byName[string(rule.Name)], true
		}
	}
	return Network{}, false
}

// SameRules reports whether the same rules match two interfaces, whatever the address.
func (c *Config) SameRules(a, b Subject) bool {
	return !slices.ContainsFunc(cmp.Or(c, &none).rules, func(e entry) bool { return e.Match.matches(a) != e.Match.matches(b) })
}

// Solicits reports whether holders of addresses in the network are probed. A VLAN inside
// a network has the properties of the network: "storage.100" those of "storage".
func (c *Config) Solicits(network string) bool {
	n, ok := c.named(network)
	return !ok || n.Solicit
}

// Scope returns the scope of the network and of its VLANs. A network that is not in the file has scope
// Cluster if it is [DefaultNetwork] or a [SubnetNetwork], else Node.
func (c *Config) Scope(network string) Scope {
	n, ok := c.named(network)
	switch {
	case ok:
		return n.Scope
	case stripVLANs(network) == DefaultNetwork, isSubnetNetwork(stripVLANs(network)), c.Infers(network):
		return Cluster
	}
	return Node // local container engines have the same subnets on many nodes
}

// Shared reports whether the address may have many holders.
func (c *Config) Shared(ip netip.Addr) bool { return containsIP(cmp.Or(c, &none).shared, ip) }

// Exclusive reports whether one node at a time may have the address for itself, on whatever device.
func (c *Config) Exclusive(ip netip.Addr) bool { return containsIP(cmp.Or(c, &none).exclusive, ip) }

// Asks reports whether somebody may be asked on the segments that nodes are on.
func (c *Config) Asks() bool { return cmp.Or(c, &none).segments.Ask != "off" }

// segmentPrefix is what the names of segments behind devices of the node begin with.
const segmentPrefix = "segment@"

// SegmentNetwork names the segment behind a device of the node by which devices inside of pods send.
func SegmentNetwork(device string) string { return segmentPrefix + device }

// Infers reports whether a network is a segment that pods of other nodes may be on, too, as is found out when two have one address. Nobody can be asked
// in the VLANs of pods.
func (c *Config) Infers(network string) bool {
	c = cmp.Or(c, &none)
	return strings.HasPrefix(network, segmentPrefix) && stripVLAN(network) == network && c.segments.Infer != "off" && c.Asks()
}

// SharedRanges returns what may have many holders, in the order of the file.
func (c *Config) SharedRanges() []netip.Prefix { return prefixes(cmp.Or(c, &none).shared) }

// ExclusiveRanges returns what one node at a time may have, in the order of the file.
func (c *Config) ExclusiveRanges() []netip.Prefix { return prefixes(cmp.Or(c, &none).exclusive) }

func prefixes(list []addressOrCIDR) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, s.Prefix)
	}
	return all
}

// IgnoredPatterns returns the patterns for the names of interfaces that are not observed, in the order of the file.
func (c *Config) IgnoredPatterns() []string {
	var all []string
	for _, p := range cmp.Or(c, &none).ignored {
		all = append(all, string(p))
	}
	return all
}

// Ignored reports whether the interface, by its host-side name, is not to be observed.
func (c *Config) Ignored(interfaceName string) bool {
	return anyMatch(cmp.Or(c, &none).ignored, interfaceName)
}

// Limits returns the limits, with defaults for missing ones.
func (c *Config) Limits() Limits { return cmp.Or(cmp.Or(c, &none).limits, defaultLimits) }

// named returns the properties of a network by its name, with or without VLAN tags.
func (c *Config) named(network string) (Network, bool) {
	n, ok := cmp.Or(c, &none).byName[stripVLANs(network)] // no name in the file has tags
	return n, ok
}

// stripVLANs removes up to two VLAN tags from the name of a network: "default.200.100".
func stripVLANs(network string) string { return stripVLAN(stripVLAN(network)) }

func stripVLAN(network string) string {
	base := strings.TrimRight(network, "0123456789")
	if base == network || !strings.HasSuffix(base, ".") {
		return network
	}
	return base[:len(base)-1]
}

func (m *match) matches(s Subject) bool {
	return (len(m.Interfaces) == 0 || anyMatch(m.Interfaces, s.Interface)) &&
		(len(m.Peers) == 0 || anyMatch(m.Peers, s.Peer)) &&
		(len(m.Bridges) == 0 || anyMatch(m.Bridges, s.Bridge))
}

func (m *match) matchesHost(device string) bool {
	return len(m.Peers) == 0 && (len(m.Interfaces) == 0 && len(m.Bridges) == 0 ||
		anyMatch(m.Interfaces, device) || anyMatch(m.Bridges, device))
}

// anyMatch reports whether a pattern matches. An empty name matches none: "*" for a bridge requires a
// bridge.
func anyMatch(patterns []pattern, name string) bool {
	return name != "" && slices.ContainsFunc(patterns, func(p pattern) bool {
		ok, _ := path.Match(string(p), name)
		return ok
	})
}

// canonical returns the form of an address that is compared with prefixes.
func canonical(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

func containsIP[T interface{ Contains(netip.Addr) bool }](list []T, ip netip.Addr) bool {
	ip = canonical(ip)
	return slices.ContainsFunc(list, func(p T) bool { return p.Contains(ip) })
}
