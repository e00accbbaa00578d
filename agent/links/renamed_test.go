package links_test

import (
	"maps"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// KubeVirt renames the interface of a virtual machine's pod. An agent that starts later must assign
// the same network as agents that saw the first name.
func TestRenamedForAGuest(t *testing.T) {
	pod := ownnetns.NewPod(t)
	for name, renamed := range map[string]string{"pod1": "eth0-nic", "pod2": "net1-nic", "pod3": "16477688c0e-nic"} {
		addVeth(t, pod, name)
		inPod(t, pod, func() error {
			eth0, err := netlink.LinkByName("eth0")
			must(t, err)
			must(t, netlink.LinkSetDown(eth0))
			return netlink.LinkSetName(eth0, renamed)
		})
	}
	_, wait := watch(t, links.Options{})
	got := make(map[string]string)
	for len(got) < 3 {
		added := wait("the interfaces", func(e links.Event) bool { return e.Kind == links.Added }).Interface
		got[added.Name] = added.View.Peer
	}
	if want := map[string]string{"pod1": "eth0", "pod2": "net1", "pod3": "pod16477688c0e"}; !maps.Equal(got, want) {
		t.Errorf("peers %v, want %v", got, want)
	}
}

// The host end has a first name, too: on Open vSwitch it names the network.
func TestHostEndRenamed(t *testing.T) {
	_, wait := watch(t, links.Options{})
	veth := addVeth(t, ownnetns.NewPod(t), "before", "10.1.1.1/24")
	if added := wait("added", named(links.Added, "before")).Interface; added.FirstName != "before" {
		t.Errorf("first name %q, want before", added.FirstName)
	}
	must(t, netlink.LinkSetDown(veth))
	must(t, netlink.LinkSetName(veth, "after"))
	if renamed := wait("renamed", named(links.Changed, "after")).Interface; renamed.FirstName != "before" {
		t.Errorf("first name %q, want before", renamed.FirstName)
	}
}
