package observe

import (
	"net/netip"
	"testing"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

func TestNetwork(t *testing.T) {
	seen := func(peer, master string) links.Interface {
		return links.Interface{Seen: true, View: netns.View{Peer: peer}, Master: master}
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
		{"one tag", seen("eth0", ""), bpf.VLAN{Outer: 100}, "default.100"},
		{"two tags", seen("eth0", ""), bpf.VLAN{Outer: 200, Inner: 100}, "default.200.100"},
		{"unseen", links.Interface{}, bpf.VLAN{}, "default"},
		{"unseen, but not always", links.Interface{View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}, bpf.VLAN{}, "net1@br1.100"},
		{"unseen, on docker's bridge", links.Interface{Master: "docker0"}, bpf.VLAN{}, "docker0"},
	} {
		if got := network(config.Default(), &test.iface, test.vlan, netip.Addr{}); got != test.want {
			t.Errorf("%s: network %q, want %q", test.name, got, test.want)
		}
	}
}

// The VLAN of a bridge port does not split a network of the configuration.
func TestPortVLANAndARule(t *testing.T) {
	c := parsed(t, "networks: [{name: storage, match: {peers: [net1]}}]")
	i := links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}
	for vlan, want := range map[bpf.VLAN]string{{}: "storage", {Outer: 200}: "storage.200"} {
		if got := network(c, &i, vlan, netip.Addr{}); got != want {
			t.Errorf("tags %+v: network %q, want %q", vlan, got, want)
		}
	}
}

// TestSameNetworks: only a rule that matches one of the two states makes a difference.
func TestSameNetworks(t *testing.T) {
	before := &links.Interface{Name: "veth0", Seen: true, View: netns.View{Peer: "eth0"}}
	for _, test := range []struct {
		text         string
		name, master string
		same         bool
	}{
		{"networks: [{name: default, scope: cluster}]", "cali0", "", true},
		{"networks: [{name: other, match: {interfaces: [tap*]}}]", "cali0", "cni0", true},
		{"networks: [{name: other, match: {interfaces: [cali*]}}]", "cali0", "", false},
		{"networks: [{name: other, match: {bridges: [cni0]}}]", "veth0", "cni0", false},
		{"", "veth0", "docker0", false},
	} {
		after := &links.Interface{Name: test.name, Master: test.master, Seen: true, View: netns.View{Peer: "eth0"}}
		if got := sameNetworks(parsed(t, test.text), before, after); got != test.same {
			t.Errorf("%s: to %s on %q: same %t, want %t", test.text, test.name, test.master, got, test.same)
		}
	}
	port := links.Interface{Name: "veth1", Master: "br1", PortVLAN: 100, Seen: true, View: netns.View{Peer: "net1"}}
	other := port
	other.PortVLAN = 200
	if sameNetworks(parsed(t, ""), &port, &other) {
		t.Error("another VLAN of the bridge is the same network")
	}
}
