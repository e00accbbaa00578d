package links_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
	attrs.Name, attrs.ParentIndex, attrs.Namespace, attrs.Index = name, parent.Attrs().Index, netlink.NsPid(pod.Pid), 1000
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

// TestInsideKinds: other devices of a pod that send by one of the node. Not every kernel has all of them.
func TestInsideKinds(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0")
	parent, err := netlink.LinkByName("up0")
	must(t, err)
	attrs := netlink.NewLinkAttrs()
	attrs.ParentIndex, attrs.Namespace = parent.Attrs().Index, netlink.NsPid(pod.Pid)
	add := func(name string, device netlink.Link) (added bool) {
		device.Attrs().Name = name
		err := netlink.LinkAdd(device)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
		return err == nil
	}
	tap := add("tap0", &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}})
	vlan := add("vlan0", &netlink.Vlan{LinkAttrs: attrs, VlanId: 100})
	_, wait := watch(t, links.Options{})
	t.Logf("this kernel has macvtap: %t, VLAN devices: %t", tap, vlan)
	counted := !tap
	wait("all observed or counted", func(e links.Event) bool {
		switch {
		case e.Kind == links.Unobserved:
			counted = counted || slices.ContainsFunc(e.Unobserved, func(i links.Interface) bool { return i.Name == "tap0" && i.State == links.Unsupported })
		case attached("vlan0@up0.100")(e):
			vlan = e.Interface.Kind != "vlan" || e.Interface.ParentVLAN != 100
		}
		return counted && !vlan
	})
}

// TestMacvlanMany: a pod can make devices on the device that its own one sends by. A limited number is observed, those that were first
// stay, the others are counted, and no other pod waits for them.
func TestMacvlanMany(t *testing.T) {
	pod, other := ownnetns.NewPod(t), ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0", "10.1.1.1/24")
	_, wait := watch(t, links.Options{})
	wait("mv0 attached", attached("mv0@up0"))
	inPod(t, pod, func() error {
		parent, err := netlink.LinkByName("mv0")
		if err != nil {
			return err
		}
		for n := range 80 {
			attrs := netlink.NewLinkAttrs() // with a lower index than that of mv0, so before it in the kernel's list
			attrs.Name, attrs.ParentIndex, attrs.Index = fmt.Sprint("many", n), parent.Attrs().Index, 10+n
			if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
				return err
			}
		}
		address, err := netlink.ParseAddr("10.1.1.2/24") // its event leads to a list of the devices
		return errors.Join(err, netlink.AddrAdd(parent, address))
	})
	addVeth(t, other, "pod1", "10.1.1.9/24")
	states := map[string]links.State{"mv0@up0": links.Attached}
	attached := func() (n int) {
		for _, state := range states {
			if state == links.Attached {
				n++
			}
		}
		return n
	}
	const limit, more = 64, 80 + 1 - 64
	counted := false
	wait("all attached", func(e links.Event) bool {
		switch e.Kind {
		case links.Added, links.Changed:
			states[e.Interface.Name] = e.Interface.State
			if attached() == 1+limit && states["pod1"] != links.Attached {
				t.Error("pod1 waits for others")
			}
		case links.Removed:
			t.Fatalf("%s is not observed any more", e.Interface.Name)
		case links.Unobserved:
			counted = slices.ContainsFunc(e.Unobserved, func(i links.Interface) bool {
				return i.Name == fmt.Sprint(more, " more") && i.State == links.Unsupported && i.Netns.Pid == pod.Pid
			})
		}
		return attached() == 1+limit && counted
	})
	if len(states) != 1+limit {
		t.Errorf("%d interfaces", len(states))
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

// TestMacvlanParent: the configuration ignores a device by the name of the one that it sends by, which may change.
func TestMacvlanParent(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0", "10.1.1.1/24")
	w, wait := watch(t, links.Options{})
	wait("mv0 attached", attached("mv0@up0"))
	// A new netns is listed twice. The following has to be found by further lists, and no resync comes in time.
	w.SetIgnore(func(string) bool { return false })
	wait("a list", func(e links.Event) bool { return e.Kind == links.HostAddresses })
	w.SetIgnore(func(name string) bool { return name == "up0" })
	wait("mv0 ignored", named(links.Removed, "mv0@up0"))
	w.SetIgnore(nil)
	wait("mv0 not ignored", attached("mv0@up0"))
	parent, err := netlink.LinkByName("up0")
	must(t, err)
	must(t, netlink.LinkSetName(parent, "renamed"))
	wait("its new name", func(e links.Event) bool {
		return named(links.Changed, "mv0@renamed")(e) && e.Interface.Master == "renamed"
	})
}

// TestMacvlanOtherName: a netns gets another name, and its device is attached to again.
func TestMacvlanOtherName(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addMacvlan(t, pod, "mv0", "10.1.1.1/24")
	name := func(name string) (remove func()) {
		t.Helper()
		ip := func(args ...string) {
			t.Helper()
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		ip("netns", "attach", name, fmt.Sprint(pod.Pid))
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		return func() { ip("netns", "del", name) }
	}
	first, second := fmt.Sprint("links-first-", os.Getpid()), fmt.Sprint("links-second-", os.Getpid())
	remove := name(first)
	_, wait := watch(t, links.Options{})
	wait("mv0 attached", attached("mv0@up0"))
	remove()
	name(second)
	wait("attached again", func(e links.Event) bool {
		if i := e.Interface; i != nil && i.State == links.Failed {
			t.Fatalf("not attached: %s", e.Interface.Reason)
		}
		return attached("mv0@up0")(e) && e.Interface.Netns.Name == second
	})
}
