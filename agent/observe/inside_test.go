package observe

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/bpf"
)

// inside adds a macvlan device that sends by a device of the node.
func (w *harness) inside(parent string, number int, cookie uint64, ips ...string) *Interface {
	l := link("net1@"+parent, parent, "net1", math.MaxInt32+number, cookie, ips...)
	l.Kind, l.InnerIndex = "macvlan", 2
	i, _ := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
	return i
}

// TestParentNetworks: an address on a macvlan device is in the network of the segment that it sends to.
func TestParentNetworks(t *testing.T) {
	// What the pod can choose, names, matches no rule.
	w := newHarness(t, "networks: [{name: storage, match: {bridges: [eth2]}}, {name: a, match: {interfaces: ['net*']}}, {name: b, match: {peers: [net1]}}]")
	w.GossipAddress = netip.MustParseAddr("192.168.7.1")
	uplink, other, storage := w.inside("eth0", 1, 7), w.inside("eth1", 2, 8), w.inside("eth2", 3, 9)
	host := func(device, ip, subnet string) links.HostAddress {
		return links.HostAddress{IP: netip.MustParseAddr(ip), Subnet: netip.MustParsePrefix(subnet), Device: device}
	}
	w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{
		host("eth0", "192.168.7.1", "192.168.7.0/24"), host("eth0", "fd07::1", "fd07::/64"), host("eth1", "10.1.0.1", "10.1.0.0/24"),
	}}, time.Now())
	for _, test := range []struct {
		i    *Interface
		vlan bpf.VLAN
		ip   string
		want string
	}{
		{uplink, bpf.VLAN{}, "192.168.7.9", config.DefaultNetwork}, // where the nodes are
		{uplink, bpf.VLAN{}, "fd07::9", config.DefaultNetwork},
		{uplink, bpf.VLAN{}, "10.1.0.9", "192.168.7.0/24"},
		{uplink, bpf.VLAN{Outer: 5}, "192.168.7.9", "192.168.7.0/24.5"},
		{other, bpf.VLAN{}, "10.1.0.9", "segment@eth1"},
		{other, bpf.VLAN{}, "192.168.7.9", "segment@eth1"},
		{storage, bpf.VLAN{}, "10.1.0.9", "storage"},
	} {
		if got := w.Key(test.i, netip.MustParseAddr(test.ip), test.vlan).Network; got != test.want {
			t.Errorf("%s, %+v on %s: network %s, want %s", test.ip, test.vlan, test.i.Name, got, test.want)
		}
	}
	for network, scope := range map[string]config.Scope{
		"192.168.7.0/24": config.Cluster, "192.168.7.0/24.5": config.Cluster, "fd07::/64": config.Cluster, "segment@eth1": config.Node, "net1": config.Node,
	} {
		if got := w.Config().Scope(network); got != scope {
			t.Errorf("network %s: scope %s, want %s", network, got, scope)
		}
	}
}

// TestParentAddresses: the node's addresses on a segment of its own are there, too, while pods are.
func TestParentAddresses(t *testing.T) {
	w := newHarness(t, "")
	address := links.HostAddress{IP: netip.MustParseAddr("10.1.0.1"), Subnet: netip.MustParsePrefix("10.1.0.0/24"), Device: "eth1"}
	in := func(all []Observation) (networks []string) {
		for _, o := range all {
			switch o.Kind {
			case Withdrawn:
				networks = append(networks, "no more "+o.Sighting.Key.Network)
			case Seen:
				networks = append(networks, o.Sighting.Key.Network)
			}
		}
		return networks
	}
	want := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{address}}, time.Now())
	want(in(all), "default")
	l := link("net1@eth1", "eth1", "net1", math.MaxInt32+1, 7)
	l.Kind = "macvlan"
	_, all = w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
	want(in(all), "default", "segment@eth1")
	_, all = w.Update(links.Event{Kind: links.Removed, Interface: l}, time.Now())
	want(in(all), "no more segment@eth1", "default")
}
