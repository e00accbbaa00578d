package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

func TestNetwork(t *testing.T) {
	seen := func(peer, master string) links.Interface {
		return links.Interface{Seen: true, Index: 2, View: netns.View{Peer: peer}, Master: master}
	}
	for _, test := range []struct {
		name  string
		iface links.Interface
		vlan  bpf.VLAN
		want  string
	}{
		{"primary, routed", seen("eth0", ""), bpf.VLAN{}, "default"},
		{"primary, on a CNI bridge", seen("eth0", "cni0"), bpf.VLAN{}, "default"},
		{"docker container", seen("eth0", "docker0"), bpf.VLAN{}, "docker0"},
		{"docker's own network", seen("eth0", "br-0123456789ab"), bpf.VLAN{}, "br-0123456789ab"},
		{"a build's container", seen("eth0", "buildkit0"), bpf.VLAN{}, "buildkit0"},
		{"a CNI bridge that only looks like one", seen("eth0", "br-lan"), bpf.VLAN{}, "default"},
		{"secondary, routed", seen("net1", ""), bpf.VLAN{}, "net1"},
		{"secondary, on a bridge", seen("net1", "blue"), bpf.VLAN{}, "net1@blue"},
		{"secondary, on another bridge", seen("net1", "green"), bpf.VLAN{}, "net1@green"},
		{"secondary, on Open vSwitch", links.Interface{Seen: true, Name: "renamed", FirstName: "a1b2c3_1", View: netns.View{Peer: "ovn-udn1"}, Master: "ovs-system"}, bpf.VLAN{}, "ovn-udn1@a1b2c3_1"},
		{"primary, on Open vSwitch", seen("eth0", "ovs-system"), bpf.VLAN{}, "default"},
		{"secondary, in a VLAN of the bridge", links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{}, "net1@br1.100"},
		{"secondary, another VLAN by a tag", links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{Outer: 200}, "net1@br1.200"},
		{"secondary, by the tag of the port's VLAN", links.Interface{Seen: true, Index: 2, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{Outer: 100}, "net1@br1.100"},
		{"primary, in a VLAN of the bridge", links.Interface{Seen: true, Index: 2, View: netns.View{Peer: "eth0"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{}, "default"},
		{"primary, by the tag of the port's VLAN", links.Interface{Seen: true, Index: 2, View: netns.View{Peer: "eth0"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{Outer: 100}, "default"},
		{"primary, by the tag of the default VLAN", links.Interface{Seen: true, Index: 2, View: netns.View{Peer: "eth0"}, Master: "br1", PortVLAN: 1}, bpf.VLAN{Outer: 1}, "default"},
		{"primary, the same tag where the port has another VLAN", links.Interface{Seen: true, Index: 2, View: netns.View{Peer: "eth0"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{Outer: 1}, "default.1"},
		{"secondary, the default VLAN by a tag", links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{Outer: 1}, "net1@br1"},
		{"secondary, the same tag where no VLANs are distinguished", links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1"}, bpf.VLAN{Outer: 1}, "net1@br1.1"},
		{"secondary, in the default VLAN of the bridge", links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 1}, bpf.VLAN{}, "net1@br1"},
		{"primary, a tag in the port's VLAN", links.Interface{Seen: true, Index: 2, View: netns.View{Peer: "eth0"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{Outer: 100, Inner: 7}, "default.7"},
		{"one tag", seen("eth0", ""), bpf.VLAN{Outer: 100}, "default.100"},
		{"two tags", seen("eth0", ""), bpf.VLAN{Outer: 200, Inner: 100}, "default.200.100"},
		{"unseen", links.Interface{}, bpf.VLAN{}, "default"},
		{"unseen, on docker's bridge", links.Interface{Master: "docker0"}, bpf.VLAN{}, "docker0"},
	} {
		w := newHarness(t, "")
		i, _ := w.Update(links.Event{Kind: links.Added, Interface: &test.iface}, time.Now())
		if got := i.Key(netip.Addr{}, test.vlan).Network; got != test.want {
			t.Errorf("%s: network %q, want %q", test.name, got, test.want)
		}
		unseen := test.iface
		unseen.Seen, unseen.View = false, netns.View{}
		w.Update(links.Event{Kind: links.Changed, Interface: &unseen}, time.Now())
		if got := i.Key(netip.Addr{}, test.vlan).Network; got != test.want {
			t.Errorf("%s, not seen any more: network %q, want %q", test.name, got, test.want)
		}
	}
}

// The VLAN of a bridge port does not split a network of the configuration.
func TestPortVLANAndARule(t *testing.T) {
	w := newHarness(t, "networks: [{name: storage, match: {peers: [net1]}}]")
	i := w.add("veth1", "br1", "net1", 2, 7)
	w.change(i, func(l *links.Interface) { l.PortVLAN = 100 })
	for vlan, want := range map[bpf.VLAN]string{{}: "storage", {Outer: 200}: "storage.200"} {
		if got := i.Key(netip.Addr{}, vlan).Network; got != want {
			t.Errorf("tags %+v: network %q, want %q", vlan, got, want)
		}
	}
}

// Bindings move only if a rule matches one of the two states, or the network is another one.
func TestMovesWithItsInterface(t *testing.T) {
	for _, test := range []struct {
		text, peer   string
		name, master string
		vlan         uint16
		moves        bool
	}{
		{"networks: [{name: default, scope: cluster}]", "eth0", "cali0", "", 0, false},
		{"networks: [{name: other, match: {interfaces: [tap*]}}]", "eth0", "cali0", "cni0", 0, false},
		{"networks: [{name: other, match: {interfaces: [cali*]}}]", "eth0", "cali0", "", 0, true},
		{"networks: [{name: other, match: {bridges: [cni0]}}]", "eth0", "veth0", "cni0", 0, true},
		{"", "eth0", "veth0", "docker0", 0, true},
		{"", "eth0", "veth0", "cni0", 100, false},
		{"", "net1", "veth0", "", 100, true},
	} {
		w := newHarness(t, test.text)
		i := w.add("veth0", "", test.peer, 2, 7, "10.0.0.5")
		w.binds(i, "10.0.0.5")
		all := w.change(i, func(l *links.Interface) { l.Name, l.Master, l.PortVLAN = test.name, test.master, test.vlan })
		if moves := len(all) > 0; moves != test.moves {
			t.Errorf("%s: to %s on %q: %+v, want that it moves: %t", test.text, test.name, test.master, all, test.moves)
		}
	}
}
