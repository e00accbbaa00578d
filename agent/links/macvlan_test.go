package links_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// addMacvlan adds a device up0 of the node and a macvlan device on it inside of a pod.
func addMacvlan(t *testing.T, pod *ownnetns.Pod, name string, addresses ...string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up1"}))
	parent, err := netlink.LinkByName("up0")
	must(t, err)
	t.Cleanup(func() { netlink.LinkDel(parent) })
	attrs.Name, attrs.ParentIndex, attrs.Namespace = name, parent.Attrs().Index, netlink.NsPid(pod.Pid)
	must(t, netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	inPod(t, pod, func() error {
		device, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			address, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(device, address); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(device)
	})
}

// TestMacvlan: a device inside of a pod is attached to and follows its addresses, also while no list of links comes; it goes with its
// netns.
func TestMacvlan(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0", "10.1.1.1/24")
	_, wait := watch(t, links.Options{})
	e := wait("mv0 attached", func(e links.Event) bool {
		return attached("mv0@up0")(e) && e.Interface.View.Holds(netip.MustParseAddr("10.1.1.1"), 0, 0)
	})
	if i := e.Interface; i.Kind != "macvlan" || i.Master != "up0" || i.Index <= math.MaxInt32 || i.InnerIndex <= 0 || !i.Listed || i.Mute() == "" {
		t.Errorf("got %+v", i)
	}
	inPod(t, pod, func() error {
		device, err := netlink.LinkByName("mv0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.1.1.2/24")
		return errors.Join(err, netlink.AddrAdd(device, address))
	})
	wait("another address", holds(links.Changed, "mv0@up0", "10.1.1.2"))
	pod.Delete()
	wait("mv0 is gone", named(links.Removed, "mv0@up0"))
}

// TestMacvlanMany: a pod can make devices on the device that its own one sends by. A limited number is observed, and others do not wait
// for them.
func TestMacvlanMany(t *testing.T) {
	pod, other := ownnetns.NewPod(t), ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0", "10.1.1.1/24")
	inPod(t, pod, func() error {
		parent, err := netlink.LinkByName("mv0")
		if err != nil {
			return err
		}
		for n := range 80 {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.ParentIndex = fmt.Sprint("many", n), parent.Attrs().Index
			if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
				return err
			}
		}
		return nil
	})
	addVeth(t, other, "pod1", "10.1.1.9/24")
	_, wait := watch(t, links.Options{})
	states := make(map[string]links.State)
	attached := func() (n int) {
		for _, state := range states {
			if state == links.Attached {
				n++
			}
		}
		return n
	}
	const limit = 64
	wait("all attached", func(e links.Event) bool {
		if e.Kind == links.Added || e.Kind == links.Changed {
			states[e.Interface.Name] = e.Interface.State
		}
		if n := attached(); n == 1 && states["pod1"] != links.Attached {
			t.Fatalf("pod1 waits for others: %v", states)
		}
		return attached() == 1+limit
	})
	if len(states) != 1+limit || states["mv0@up0"] != links.Attached {
		t.Errorf("%d interfaces, mv0 is %s", len(states), states["mv0@up0"])
	}
}

// TestMacvlanDeleted: a device goes, and its netns stays.
func TestMacvlanDeleted(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0", "10.1.1.1/24")
	_, wait := watch(t, links.Options{})
	wait("mv0 attached", attached("mv0@up0"))
	inPod(t, pod, func() error {
		device, err := netlink.LinkByName("mv0")
		return errors.Join(err, netlink.LinkDel(device))
	})
	wait("mv0 is gone", named(links.Removed, "mv0@up0"))
}
