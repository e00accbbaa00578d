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
	"github.com/dupip/dupip/detector"
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
		host("eth0", "10.9.0.1", "10.9.0.0/24"), host("eth0", "192.168.7.1", "192.168.7.0/24"), host("eth0", "fd07::1", "fd07::/64"),
		host("eth1", "10.1.0.1", "10.1.0.0/24"),
	}}, time.Now())
	for _, test := range []struct {
		i    *Interface
		vlan bpf.VLAN
		ip   string
		want string
	}{
		{uplink, bpf.VLAN{}, "192.168.7.9", config.DefaultNetwork}, // where the nodes are
		// Other nodes may have no addresses of these subnets there.
		{uplink, bpf.VLAN{}, "fd07::9", "192.168.7.0/24"},
		{uplink, bpf.VLAN{}, "10.9.0.9", "192.168.7.0/24"},
		{uplink, bpf.VLAN{}, "10.1.0.9", "192.168.7.0/24"},
		{uplink, bpf.VLAN{Outer: 5}, "192.168.7.9", "192.168.7.0/24.5"},
		{other, bpf.VLAN{}, "10.1.0.9", "segment@eth1"},
		{other, bpf.VLAN{}, "192.168.7.9", "segment@eth1"},
		{storage, bpf.VLAN{}, "10.1.0.9", "storage"},
	} {
		if got := test.i.Key(netip.MustParseAddr(test.ip), test.vlan).Network; got != test.want {
			t.Errorf("%s, %+v on %s: network %s, want %s", test.ip, test.vlan, test.i.Name, got, test.want)
		}
	}
	for network, scope := range map[string]config.Scope{
		"192.168.7.0/24.100": config.Cluster, "192.168.7.0/24": config.Cluster, "192.168.7.0/24.5": config.Cluster, "fd07::/64": config.Cluster, "segment@eth1": config.Cluster, "net1": config.Node,
	} {
		if got := w.Config().Scope(network); got != scope {
			t.Errorf("network %s: scope %s, want %s", network, got, scope)
		}
	}
}

// networksOf are those of the addresses of the node that are observed, or withdrawn.
func networksOf(all []Observation) (networks []string) {
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

// TestVLANNetworks: a VLAN device of a pod is in the network of that VLAN on the node's device that it sends by.
func TestVLANNetworks(t *testing.T) {
	w := newHarness(t, "networks: [{name: storage, match: {bridges: [eth2.5]}}]")
	w.GossipAddress = netip.MustParseAddr("192.168.7.1")
	number := 0
	add := func(parent string, vlan uint16) *Interface {
		number++
		l := link("net1@"+parent, parent, "net1", math.MaxInt32+number, uint64(number))
		l.Kind, l.ParentVLAN = "vlan", vlan
		i, _ := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
		return i
	}
	all := map[*Interface]string{
		add("eth0.100", 100): "192.168.7.0/24.100", add("eth1.100", 100): "segment@eth1.100", add("eth1.200", 200): "segment@eth1.200",
		add("eth2.5", 5): "storage",
	}
	check := func(gossip string) {
		t.Helper()
		w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{
			{IP: w.GossipAddress, Subnet: netip.MustParsePrefix("192.168.7.0/24"), Device: gossip},
		}}, time.Now())
		for i, want := range all {
			if got := i.Key(netip.MustParseAddr("192.168.7.9"), bpf.VLAN{}).Network; got != want {
				t.Errorf("%s with gossip on %s: network %s, want %s", i.Name, gossip, got, want)
			}
		}
	}
	check("eth0")
	// Where gossip is in that VLAN, the pod is among the nodes.
	for i, want := range all {
		if want == "192.168.7.0/24.100" {
			all[i] = config.DefaultNetwork
		}
	}
	check("eth0.100")
}

// TestParentAddresses: the node's addresses on a segment of its own are there, too, while pods are.
func TestParentAddresses(t *testing.T) {
	w := newHarness(t, "")
	address := links.HostAddress{IP: netip.MustParseAddr("10.1.0.1"), Subnet: netip.MustParsePrefix("10.1.0.0/24"), Device: "eth1"}
	want := func(all []Observation, want ...string) {
		t.Helper()
		if got := networksOf(all); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{address}}, time.Now())
	want(all, "default")
	l := link("net1@eth1", "eth1", "net1", math.MaxInt32+1, 7)
	l.Kind = "macvlan"
	i, all := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
	want(all, "segment@eth1")
	want(w.change(i, func(l *links.Interface) { l.Up = false })) // not again
	want(w.change(i, func(l *links.Interface) { l.Master = "eth2" }), "no more segment@eth1")
	want(w.change(i, func(l *links.Interface) { l.Master = "eth1" }), "segment@eth1")
	_, all = w.Update(links.Event{Kind: links.Removed, Interface: i.Interface}, time.Now())
	want(all, "no more segment@eth1")
}

// TestNodesSegment: where the nodes receive gossip, an address that is not in the subnet of that is in the network of macvlan devices,
// too, whether this node has such pods or not: another one may.
func TestNodesSegment(t *testing.T) {
	w := newHarness(t, "")
	w.GossipAddress = netip.MustParseAddr("192.168.7.1")
	host := func(device, ip, subnet string) links.HostAddress {
		return links.HostAddress{IP: netip.MustParseAddr(ip), Subnet: netip.MustParsePrefix(subnet), Device: device}
	}
	list := []links.HostAddress{host("eth0", "fd07::1", "fd07::/64"), host("eth0", "192.168.7.1", "192.168.7.0/24"), host("eth1", "10.1.0.1", "10.1.0.0/24")}
	_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now())
	if got, want := networksOf(all), []string{"default", "default", "default", "192.168.7.0/24"}; !slices.Equal(got, want) || all[len(all)-1].Sighting.Key.IP != list[0].IP {
		t.Errorf("%q, want %q, the last one of %v", got, want, list[0].IP)
	}
	key := detector.Key{Network: "192.168.7.0/24", IP: list[0].IP}
	if o, ok := w.Own.Find(list, key, time.Now()); !ok || o.Sighting.Key != key {
		t.Errorf("found %+v, %t", o, ok)
	}
}

// TestManyParentAddresses: the keys of a segment displace none of the cluster's network.
func TestManyParentAddresses(t *testing.T) {
	w := newHarness(t, "")
	list := hostList(maxHostKeys)
	w.inside("eth1", 1, 7)
	_, all := w.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now())
	n := 0
	for _, network := range networksOf(all) {
		if network == config.DefaultNetwork {
			n++
		}
	}
	if n != maxHostKeys {
		t.Errorf("%d addresses of the node are in the network of the cluster, want %d", n, maxHostKeys)
	}
}
