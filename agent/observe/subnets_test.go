package observe

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

// Subnets come from primary ports of the same bridge and VLAN, if they have more than one address, and secondary ports move when these change.
func TestNetworksSubnets(t *testing.T) {
	port := func(master string, vlan uint16, role Role, address string) *Interface {
		i := &Interface{Interface: &links.Interface{Master: master, PortVLAN: vlan}, Origin: &Origin{Role: role}}
		i.Pod.Result = result(address, "veth0")
		return i
	}
	n := &networks{own: &Own{listed: []links.HostAddress{{Device: "cni0", Subnet: netip.MustParsePrefix("10.9.0.0/16")}, {Device: "br1", Subnet: netip.MustParsePrefix("10.8.0.0/16")}}}}
	secondary := port("cni0", links.DefaultVLAN, SecondaryByResult, "10.7.0.5/24")
	all := make(interfaces)
	for index, step := range []struct {
		name  string
		added *Interface
		want  []string
	}{
		{"no primary port", secondary, nil},
		{"on another bridge", port("br1", 0, PrimaryByResult, "10.6.0.5/24"), nil},
		{"in another VLAN", port("cni0", 100, PrimaryByResult, "10.5.0.5/24"), nil},
		{"of one address", port("cni0", 0, PrimaryByResult, "10.4.0.5/32"), []string{"10.9.0.0/16"}},
		{"a subnet", port("cni0", 0, PrimaryByRoute, "10.3.0.5/24"), []string{"10.3.0.0/24", "10.9.0.0/16"}},
		{"the same", port("cni0", 0, PrimaryByRoute, "10.3.0.6/24"), []string{"10.3.0.0/24", "10.9.0.0/16"}},
	} {
		before := len(n.subnets[segmentOf(secondary)])
		all[detector.Interface{Ifindex: uint32(index)}] = step.added
		n.findSubnets(all)
		var got []string
		for _, p := range n.subnets[segmentOf(secondary)] {
			got = append(got, p.String())
		}
		if !slices.Equal(got, step.want) || secondary.moves != (len(got) != before) || step.added != secondary && step.added.moves {
			t.Errorf("%s: subnets %v, want %v; the secondary port moves: %t", step.name, got, step.want, secondary.moves)
		}
		secondary.moves = false
	}
}
