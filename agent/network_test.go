package agent

import (
	"net/netip"
	"strings"
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

// A network that the configuration declares is one, whatever VLANs its bridges use.
func TestPortVLANAndARule(t *testing.T) {
	c := parsed(t, "networks: [{name: storage, match: {peers: [net1]}}]")
	i := links.Interface{Seen: true, View: netns.View{Peer: "net1"}, Master: "br1", PortVLAN: 100}
	for vlan, want := range map[bpf.VLAN]string{{}: "storage", {Outer: 200}: "storage.200"} {
		if got := network(c, &i, vlan, netip.Addr{}); got != want {
			t.Errorf("tags %+v: network %q, want %q", vlan, got, want)
		}
	}
}

func TestThisNode(t *testing.T) {
	first, err := ThisNode("n1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ThisNode("n1")
	if err != nil {
		t.Fatal(err)
	}
	if first.BootID != second.BootID || len(first.BootID) != 36 || second.Epoch <= first.Epoch || first.ID() != second.ID() {
		t.Errorf("%+v, then %+v: want one boot, one id and a later epoch", first, second)
	}
	if named, err := ThisNode(""); err != nil || named.Name == "" {
		t.Errorf("%+v, %v: want the host name", named, err)
	}
	for _, bad := range []string{"a b", "a/b", "a\nb", "ä", strings.Repeat("a", 254)} {
		if _, err := ThisNode(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("name %q: error %v, want one line", bad, err)
		}
	}
}
