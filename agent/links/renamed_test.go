package links_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

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
