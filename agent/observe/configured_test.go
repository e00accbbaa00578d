package observe

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

func (w *harness) configured(i *Interface) (ips []string) {
	for key := range i.Configured() {
		ips = append(ips, key.IP.String())
	}
	return ips
}

// TestConfigured: which addresses of a pod should answer.
func TestConfigured(t *testing.T) {
	onLo := netns.Address{IP: netip.MustParseAddr("10.0.0.53"), Where: netns.OnLoopback, Valid: true}
	nested := netns.Address{IP: netip.MustParseAddr("172.17.0.1"), Where: netns.Elsewhere, Valid: true}
	tentative := netns.Address{IP: netip.MustParseAddr("10.0.0.7"), Where: netns.OnPeer}
	sandbox := []string{"10.0.0.5", "10.0.0.6", "0.0.0.0", "127.0.0.1", "fe80::1"}
	for n, test := range []struct {
		name    string
		master  string
		peer    string
		own     []string
		more    []netns.Address
		sandbox []string
		holes   bool
		want    []string
	}{
		{name: "its own", peer: "eth0", own: []string{"10.0.0.5"}, want: []string{"10.0.0.5"}},
		{name: "of a secondary interface", master: "br1", peer: "net1", own: []string{"10.0.0.5"}, want: []string{"10.0.0.5"}},
		{name: "not one whose duplicates are being detected", peer: "eth0", own: []string{"10.0.0.5"}, more: []netns.Address{tentative}, want: []string{"10.0.0.5"}},
		{name: "lo alone", peer: "eth0", more: []netns.Address{onLo}, want: []string{"10.0.0.53"}},
		{name: "lo and eth0", peer: "eth0", own: []string{"10.0.0.5"}, more: []netns.Address{onLo}, want: []string{"10.0.0.5"}},
		{name: "lo and a nested bridge", peer: "eth0", more: []netns.Address{onLo, nested}},
		{name: "lo beside a secondary interface", master: "br1", peer: "net1", more: []netns.Address{onLo}},
		{name: "lo in a list with holes", peer: "eth0", more: []netns.Address{onLo}, holes: true},
		// The runtime's addresses are those of eth0. They count only if the kernel has none, as with a
		// virtual machine.
		{name: "a container's by the runtime", peer: "eth0", own: []string{"10.0.0.5"}, sandbox: sandbox, want: []string{"10.0.0.5"}},
		{name: "a secondary interface's by the runtime", master: "br1", peer: "net1", sandbox: sandbox},
		{name: "a virtual machine's by the runtime", peer: "eth0", sandbox: sandbox, want: []string{"10.0.0.5", "10.0.0.6"}},
	} {
		w := newHarness(t, "")
		i := w.add("veth0", test.master, test.peer, 2, uint64(7+n), test.own...)
		w.change(i, func(l *links.Interface) {
			l.View.Addresses, l.View.Truncated = append(l.View.Addresses, test.more...), test.holes
		})
		var change pods.Change
		change.Cookie = uint64(7 + n)
		for _, ip := range test.sandbox {
			change.IPs = append(change.IPs, netip.MustParseAddr(ip))
		}
		w.Name(change, time.Now())
		if got := w.configured(i); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v should answer, want %v", test.name, got, test.want)
		}
	}
}

// TestLeft: an address that leaves a netns is withdrawn, unless the netns has it on another interface. A
// process may have taken over the only address.
func TestLeft(t *testing.T) {
	first := func(l *links.Interface) { l.View.Addresses = l.View.Addresses[1:] }
	key := func(ip string) detector.Key { return detector.Key{Network: "default", IP: netip.MustParseAddr(ip)} }
	for _, test := range []struct {
		name      string
		ips       []string
		change    func(*links.Interface)
		withdrawn bool
		left      bool
	}{
		{"the only address", []string{"10.0.0.5"}, first, true, true},
		{"one of two", []string{"10.0.0.5", "10.0.0.6"}, first, true, false},
		{"one of a list with holes", []string{"10.0.0.5"}, func(l *links.Interface) { first(l); l.View.Truncated = true }, false, false},
		{"none", []string{"10.0.0.5"}, func(l *links.Interface) { l.Name = "veth9" }, false, false},
	} {
		w := newHarness(t, "")
		i := w.add("veth0", "", "eth0", 2, 7, test.ips...)
		all := w.change(i, test.change)
		if test.withdrawn != (len(all) == 1 && all[0].Kind == Withdrawn && all[0].Sighting.Key == key("10.0.0.5") && all[0].Sighting.Holder.ID == i.Holder) {
			t.Errorf("%s: %+v, want withdrawn %t", test.name, all, test.withdrawn)
		}
		var left []detector.Key
		for key := range i.Left() {
			left = append(left, key)
		}
		if test.left != slices.Equal(left, []detector.Key{key("10.0.0.5")}) || !test.left && len(left) != 0 {
			t.Errorf("%s: left %v, want it %t", test.name, left, test.left)
		}
	}
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	w.add("veth1", "", "eth1", 3, 7, "10.0.0.5") // "eth1" is another network
	if all := w.change(i, first); len(all) != 1 {
		t.Errorf("the same address in another network prevents the withdrawal: %+v", all)
	}
	w = newHarness(t, "networks: [{name: default, match: {peers: [eth1]}}]")
	i = w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	w.add("veth1", "", "eth1", 3, 7, "10.0.0.5")
	if all := w.change(i, first); len(all) != 0 {
		t.Errorf("the netns has the address on another interface of the network: %+v", all)
	}
}

// TestVLANsAreBounded: made-up tags do not displace the networks that a pod really has.
func TestVLANsAreBounded(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	own := netns.Address{IP: netip.MustParseAddr("10.1.0.5"), Where: netns.OnPeer, OuterVLAN: 4000, Valid: true}
	w.change(i, func(l *links.Interface) { l.View.Addresses = append(l.View.Addresses, own) })
	for tag := range uint16(2 * maxVLANs) {
		r := i.packet(1, "10.2.0.5", i.View.Taken)
		r.VLAN.Outer = tag + 1
		w.Record(r)
	}
	if len(i.vlans) != maxVLANs || w.Records.Dropped()[droppedVLANs] != maxVLANs {
		t.Errorf("%d networks, dropped %v", len(i.vlans), w.Records.Dropped())
	}
	for _, tag := range []uint16{0, 4000} {
		r := i.packet(1, "10.2.0.5", i.View.Taken)
		r.VLAN.Outer = tag
		w.Record(r)
	}
	if len(i.vlans) != maxVLANs+2 {
		t.Errorf("%d networks, want untagged packets and its own VLAN besides", len(i.vlans))
	}
}

// TestConfiguredWhilePending: nothing is probed on an interface that is not attached to yet.
func TestConfiguredWhilePending(t *testing.T) {
	w := newHarness(t, "")
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	for state, want := range map[links.State][]string{links.Pending: nil, links.Attached: {"10.0.0.5"}} {
		w.change(i, func(l *links.Interface) { l.State = state })
		if got := w.configured(i); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}
