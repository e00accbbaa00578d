package links

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// Each case simulates what the kernel reports, step by step, and compares the events. See [harness].
func TestTable(t *testing.T) {
	type step struct {
		do   func(*harness)
		want []string
	}
	added := step{func(h *harness) { h.addPod(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen1 attached seen eth0"}}
	bySubnet, byMAC := map[int]bool{7: true}, map[string]bool{podMAC.String(): true}
	uplink := step{
		func(h *harness) { h.signs.subnets = bySubnet; h.addPod(Attached); h.failScans() },
		[]string{"detach", "pod7 is not observed: uplink"},
	}
	event := func(change ...func(*netlink.LinkAttrs)) func(*harness) {
		return func(h *harness) { h.event(pod(change...)) }
	}
	for name, steps := range map[string][]step{
		"added when its description is complete": {
			{event(), nil},
			{func(h *harness) { h.setPodState(Attached) }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 attached seen eth0"}},
		},
		"scanned before its turn to be attached to": {
			{event(), nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 pending seen eth0"}},
			{func(h *harness) { h.setPodState(Attached) }, []string{"changed pod7 gen1 attached seen eth0"}},
		},
		"deleted before its turn": {
			{func(h *harness) { h.event(pod()); h.scanFinds("eth0"); h.report() }, nil},
			{func(h *harness) { h.deleted(7, unix.AF_UNSPEC) }, []string{"removed: interface pod7 is gone"}},
		},
		"the netns is found late": {
			{func(h *harness) { h.addPod(Attached); h.scanFails(); h.scanFails(); h.scanFails() }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 attached seen eth0"}},
		},
		"the netns is not found": {
			{func(h *harness) { h.addPod(Attached); h.failScans() }, []string{"added pod7 gen1 attached"}},
			{func(h *harness) { h.failScans() }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"changed pod7 gen1 attached seen eth0"}},
		},
		"the netns is lost, and found again": {
			added,
			{func(h *harness) { h.scanFails() }, nil},
			{func(h *harness) { h.failScans() }, []string{"changed pod7 gen1 attached"}},
			{func(h *harness) { h.failScans() }, nil},
			{func(h *harness) { h.scanFinds("other") }, []string{"changed pod7 gen1 attached seen other"}},
		},
		"deleted": {
			added,
			{func(h *harness) { h.deleted(7, unix.AF_UNSPEC) }, []string{"removed: interface pod7 is gone"}},
			{event(), nil},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen2 attached seen eth0"}},
		},
		"deleted before it was added": {
			{func(h *harness) { h.addPod(Attached); h.deleted(7, unix.AF_UNSPEC) }, []string{"detach"}},
		},
		"left a bridge": {
			added,
			{func(h *harness) { h.deleted(7, unix.AF_BRIDGE) }, nil},
		},
		"the peer is in another netns now": {
			added,
			{event(func(a *netlink.LinkAttrs) { a.NetNsID = 4 }), []string{"removed: interface pod7 leads to another device"}},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen2 attached seen eth0"}},
		},
		"another peer": {
			added,
			{event(func(a *netlink.LinkAttrs) { a.ParentIndex = 9 }), []string{"removed: interface pod7 leads to another device"}},
		},
		"the peer moved to the node's netns": {
			added,
			{event(func(a *netlink.LinkAttrs) { a.NetNsID = -1 }), []string{"removed: interface pod7 does not lead to a netns of pods any more"}},
		},
		"a default route uses it": {
			added,
			{func(h *harness) { h.routes.devices = map[int]bool{7: true}; h.event(pod()) }, []string{"removed: interface pod7 does not lead to a netns of pods any more"}},
		},
		"changes": {
			added,
			{event(), nil},
			{event(named("new")), []string{"changed new gen1 attached seen eth0"}},
			{event(named("new"), func(a *netlink.LinkAttrs) { a.OperState = netlink.OperDown }), []string{"changed new gen1 attached seen eth0"}},
			{event(), []string{"changed pod7 gen1 attached seen eth0"}},
			{event(func(a *netlink.LinkAttrs) { a.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 8} }), []string{"changed pod7 gen1 attached seen eth0"}},
			{func(h *harness) { h.event(bridge(5, "cni0", false)) }, nil},
			{event(func(a *netlink.LinkAttrs) { a.MasterIndex = 5 }), []string{"changed pod7 gen1 attached seen eth0 on cni0"}},
			{func(h *harness) { h.setPodState(Shadowed) }, []string{"changed pod7 gen1 shadowed seen eth0 on cni0"}},
			{func(h *harness) { h.setPodState(Shadowed) }, nil},
		},
		"it comes just before the first list": {
			{func(h *harness) { h.event(pod()); h.list([]netlink.Link{pod()}, h.now) }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 pending seen eth0 listed"}},
		},
		"it comes just before a later list": {
			{func(h *harness) { h.list(nil, h.now); h.event(pod()); h.list([]netlink.Link{pod()}, h.now) }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 pending seen eth0"}},
		},
		"its bridge filters no longer before its VLAN was read": {
			{func(h *harness) {
				h.event(bridge(5, "br0", true))
				h.event(pod(func(a *netlink.LinkAttrs) { a.MasterIndex = 5 }))
				h.scanFinds("eth0")
			}, nil},
			{func(h *harness) { h.list([]netlink.Link{bridge(5, "br0", false), pod()}, h.now) }, nil},
			{func(h *harness) { h.readPorts(nil) }, []string{"added pod7 gen1 pending seen eth0 listed"}},
		},
		"its bridge has another name": {
			{func(h *harness) {
				h.event(bridge(5, "br0", false))
				h.event(pod(func(a *netlink.LinkAttrs) { a.MasterIndex = 5 }))
			}, nil},
			{func(h *harness) { h.event(bridge(5, "br1", false)) }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 pending seen eth0 on br1"}},
			{func(h *harness) { h.event(bridge(5, "br2", false)) }, []string{"changed pod7 gen1 pending seen eth0 on br2"}},
			{func(h *harness) { h.event(bridge(6, "other", false)); h.event(bridge(6, "another", false)) }, nil},
		},
		"ignored": {
			{func(h *harness) { h.ignored = "test"; h.event(pod(named("test7"))) }, []string{"test7 is not observed: ignored"}},
			{event(named("test8")), []string{"test8 is not observed: ignored"}},
			{event(), nil},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen1 attached seen eth0"}},
			{event(named("test7")), []string{"removed: the configuration says to ignore test7", "test7 is not observed: ignored"}},
			{func(h *harness) { h.list([]netlink.Link{pod(named("test7"))}, h.now) }, []string{"test7 is not observed: ignored"}},
			{func(h *harness) { h.ignored = ""; h.list([]netlink.Link{pod(named("test7"))}, h.now) }, nil},
			{func(h *harness) { h.setPodState(Failed); h.scanFinds("eth0") }, []string{"added test7 gen2 failed seen eth0 listed"}},
			{
				func(h *harness) { h.ignored = "test"; h.list([]netlink.Link{pod(named("test7"))}, h.now) },
				[]string{"removed: the configuration says to ignore test7", "test7 is not observed: ignored"},
			},
			{func(h *harness) { h.deleted(7, unix.AF_UNSPEC) }, nil},
		},
		"listed": {
			{func(h *harness) {
				h.list([]netlink.Link{pod(func(a *netlink.LinkAttrs) { a.MasterIndex = 9 }), bridge(9, "cni0", false)}, h.now)
			}, nil},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen1 attached seen eth0 on cni0 listed"}},
			{func(h *harness) { h.list(nil, h.now) }, []string{"removed: interface pod7 is gone"}},
		},
		"a port whose VLAN is not known yet": {
			{func(h *harness) { h.event(bridge(5, "br1", true)) }, nil},
			{event(func(a *netlink.LinkAttrs) { a.MasterIndex = 5 }), nil},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("net1") }, nil},
			{func(h *harness) { h.readPorts(vlans(7, 100)) }, []string{"added pod7 gen1 attached seen net1 on br1 vlan100"}},
			{func(h *harness) { h.event(bridge(5, "br1", false)); h.readPorts(vlans(7, 100)) }, []string{"changed pod7 gen1 attached seen net1 on br1"}},
			{func(h *harness) { h.event(bridge(5, "br1", true)); h.readPorts(vlans(7, 100)) }, []string{"changed pod7 gen1 attached seen net1 on br1 vlan100"}},
			{event(), []string{"changed pod7 gen1 attached seen net1 vlan100"}}, // it left the bridge
			{func(h *harness) { h.readPorts(vlans(7, 100)) }, []string{"changed pod7 gen1 attached seen net1"}},
		},
		"an uplink": {
			uplink,
			{func(h *harness) { h.failScans() }, []string{"pod7 is not observed: uplink"}},
			{event(named("eth1")), []string{"eth1 is not observed: uplink"}},
			{func(h *harness) { h.ignored = "eth"; h.event(pod(named("eth1"))) }, []string{"eth1 is not observed: uplink"}},
			{func(h *harness) { h.deleted(7, unix.AF_UNSPEC) }, nil},
		},
		"an uplink by the netns that it leads into, until another veth there is found": {
			{func(h *harness) { h.signs.outside = map[int]bool{3: true}; h.addPod(Attached); h.failScans() }, []string{"detach", "pod7 is not observed: uplink"}},
			{func(h *harness) {
				h.event(pod(func(a *netlink.LinkAttrs) { a.Name, a.Index, a.ParentIndex = "pod8", 8, 4 }))
				h.veths[8].found = true
				h.classify(h.veths[7], h.now)
			}, nil},
			{func(h *harness) { h.setPodState(Attached); h.failScans() }, []string{"added pod7 gen3 attached listed"}},
		},
		"an uplink by its MAC, until the default route leaves the MAC": {
			{func(h *harness) { h.signs.macs = byMAC; h.addPod(Attached); h.failScans() }, []string{"detach", "pod7 is not observed: uplink"}},
			{func(h *harness) { h.signsErr = errUnreachable; h.signs.macs = nil; h.classifyAll() }, []string{"pod7 is not observed: uplink"}},
			{func(h *harness) { h.signsErr = nil; h.classifyAll() }, nil},
			{func(h *harness) { h.setPodState(Attached); h.failScans() }, []string{"added pod7 gen2 attached listed"}},
			{func(h *harness) { h.signs.macs = byMAC; h.classifyAll() }, []string{"removed: interface pod7 leads out of the node", "pod7 is not observed: uplink"}},
		},
		"an uplink whose netns is found later": {
			uplink,
			{func(h *harness) { h.scanFinds("eth0") }, nil},
			{func(h *harness) { h.readPorts(vlans(7, 100)) }, []string{"added pod7 gen2 pending seen eth0 listed"}},
			{func(h *harness) { h.setPodState(Attached) }, []string{"changed pod7 gen2 attached seen eth0 listed"}},
			{func(h *harness) { h.failScans() }, []string{"changed pod7 gen2 attached listed"}}, // its netns was found once, so the subnet makes it no uplink
		},
		"an uplink that becomes a pod interface, and is ignored": {
			{func(h *harness) { h.signs.subnets = bySubnet; h.addPod(Waiting); h.failScans() }, []string{"detach", "pod7 is not observed: uplink"}},
			{func(h *harness) { h.ignored, h.signs.subnets = "pod", nil; h.classifyAll() }, []string{"pod7 is not observed: ignored"}},
		},
		"an uplink that is missing in a list": {
			uplink,
			{func(h *harness) { h.list([]netlink.Link{pod()}, h.now) }, []string{"pod7 is not observed: uplink"}},
			{func(h *harness) { h.list(nil, h.now) }, nil},
		},
		"an uplink that gets a default route": {
			uplink,
			{func(h *harness) { h.routes.devices = map[int]bool{7: true}; h.event(pod()) }, nil},
		},
		"a veth with an uplink's index and another peer": {
			uplink,
			{event(func(a *netlink.LinkAttrs) { a.ParentIndex = 9 }), nil},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen2 attached seen eth0"}},
		},
		"a veth with an uplink's index in another netns": {
			uplink,
			{event(func(a *netlink.LinkAttrs) { a.NetNsID = 4 }), nil},
			{func(h *harness) { h.setPodState(Attached); h.scanFinds("eth0") }, []string{"added pod7 gen2 attached seen eth0"}},
		},
		"the signs of an uplink, but only one failed scan": {
			{func(h *harness) { h.signs.subnets = bySubnet; h.addPod(Attached); h.scanFails() }, nil},
			{func(h *harness) { h.classifyAll() }, nil},
			{func(h *harness) { h.scanFinds("eth0") }, []string{"added pod7 gen1 attached seen eth0"}},
		},
		"unreachable, but without the signs of an uplink": {
			{func(h *harness) {
				h.signs.subnets = map[int]bool{8: true}
				h.event(pod())
				h.setPodState(Attached)
				h.failScans()
			}, []string{"added pod7 gen1 attached"}},
		},
		"the signs of an uplink, but its netns is reachable": {
			{func(h *harness) { h.signs.subnets = bySubnet; h.addPod(Attached) }, nil},
			{func(h *harness) { h.reachable[3] = true; h.scanFails(); h.scanFails(); h.scanFails(); h.scanFails() }, []string{"added pod7 gen1 attached"}},
		},
		"the signs of an uplink cannot be read": {
			{func(h *harness) { h.signs.subnets, h.signsErr = bySubnet, errUnreachable }, nil},
			{func(h *harness) { h.addPod(Attached); h.failScans() }, []string{"added pod7 gen1 attached"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			for n, step := range steps {
				before := h.unobserved()
				h.unobservedDue = false
				step.do(h)
				if diff := cmp.Diff(before, h.unobserved(), cmp.Comparer(func(a, b Interface) bool {
					return a.Name == b.Name && a.State == b.State
				})); diff != "" && !h.unobservedDue {
					t.Errorf("step %d: unobservedDue is false, but the unobserved veths changed:\n%s", n+1, diff)
				}
				for _, veth := range h.veths {
					if !veth.observed() && veth.attach.due || veth.iface.State == Ignored && veth.scans.due {
						t.Errorf("step %d: a veth that is not observed is due: %+v", n+1, veth)
					}
				}
				if diff := cmp.Diff(step.want, h.report()); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", n+1, diff)
				}
			}
		})
	}
}

// The watcher attaches to a new veth at once. If it has to wait for the pod's set-up, changes of the link
// postpone attaching, for a limited time.
func TestAttachIsDue(t *testing.T) {
	h := newHarness(t)
	h.event(pod())
	veth := h.veths[7]
	attachIn := func() time.Duration {
		t.Helper()
		const never = time.Hour
		switch at := veth.attach.earlier(h.now.Add(never)); {
		case veth.attach.ready(h.now):
			return 0
		default:
			return at.Sub(h.now)
		}
	}
	if got := attachIn(); got != 0 {
		t.Errorf("attaching is due in %v, want at once", got)
	}
	h.setPodState(Waiting)
	began := h.now
	if got := attachIn(); got != quiet {
		t.Errorf("attaching is due in %v, want %v", got, quiet)
	}
	for h.now.Sub(began) < 10*quiet && !veth.attach.ready(h.now) {
		h.now = h.now.Add(time.Second)
		h.event(pod())
	}
	if took := h.now.Sub(began); took < (maxQuiets-1)*quiet || took > maxQuiets*quiet {
		t.Errorf("attached after %v to a link that changes every second, want about %v", took, maxQuiets*quiet)
	}
	h.setPodState(Failed)
	if got := attachIn(); got != attachRetry {
		t.Errorf("attaching is due in %v after a failure, want %v", got, attachRetry)
	}
	if h.setPodState(Failed); attachIn() != 2*attachRetry {
		t.Errorf("attaching is due in %v after two failures, want %v", attachIn(), 2*attachRetry)
	}
	for range 100 {
		h.setPodState(Failed)
	}
	if got := attachIn(); got != maxAttachRetry {
		t.Errorf("attaching is due in %v after 100 failures, want %v", got, maxAttachRetry)
	}
	veth.detached = true
	h.setPodState(Failed)
	if veth.filtersChanged(h.now); attachIn() != slowAttachRetry {
		t.Errorf("attaching is due in %v after it was detached again and again, want %v", attachIn(), slowAttachRetry)
	}
	veth.detached = false
	if veth.filtersChanged(h.now); attachIn() != attachRetry {
		t.Errorf("attaching is due in %v after a failure and a change, want %v", attachIn(), attachRetry)
	}
}

// Those whose two ends are up are attached to first, and of these the newest.
// Where a scan takes the place of a probe, the next one is soon enough for the same round, however long a scan takes.
func TestPauseOfMuteInterfaces(t *testing.T) {
	for _, test := range []struct {
		mute       bool
		cost, want time.Duration
	}{
		{false, 50 * time.Millisecond, time.Second},
		{true, 5 * time.Millisecond, 100 * time.Millisecond},
		{true, 50 * time.Millisecond, maxMutePause},
		{true, time.Second, 5 * time.Second}, // a fifth of a core
	} {
		h := newHarness(t)
		h.addPod(Attached)
		h.veths[7].iface.L3 = test.mute
		h.scanned(h.veths[7], netns.Ref{Inode: 33}, netns.View{Peer: "eth0", Cost: test.cost}, nil, h.now)
		if got := h.veths[7].scans.next.Sub(h.now); got != test.want {
			t.Errorf("%+v: the next scan is in %v", test, got)
		}
	}
}

func TestAttachOrder(t *testing.T) {
	h := newHarness(t)
	var links []netlink.Link
	for index, state := range []netlink.LinkOperState{netlink.OperUp, netlink.OperLowerLayerDown, netlink.OperUp, netlink.OperDown} {
		links = append(links, pod(func(a *netlink.LinkAttrs) { a.Index, a.OperState = 100+index, state }))
	}
	h.list(links, h.now)
	h.event(pod())
	var order []int
	for veth := h.toAttach(h.now); veth != nil; veth = h.toAttach(h.now) {
		if next := h.next(h.now, h.now.Add(time.Hour)); !next.Equal(h.now) { // for the scans
			t.Errorf("something is due at %v", next)
		}
		h.setState(veth, Attached, "", h.now)
		order = append(order, veth.iface.Index)
	}
	if want := []int{7, 102, 100, 103, 101}; !slices.Equal(order, want) {
		t.Errorf("attached in the order %v, want %v", order, want)
	}
}

// Each of scansApart resyncs scans another part of the seen pods. All resyncs scan the unseen ones.
func TestResyncsSpreadScans(t *testing.T) {
	const pods = 3
	h := newHarness(t)
	var links []netlink.Link
	for n := range pods {
		links = append(links, pod(named(fmt.Sprint("pod", n)), func(a *netlink.LinkAttrs) { a.Index = 1000 + n }))
	}
	// resync lists the links and returns the interfaces whose scans are due. It simulates that each
	// scan succeeds.
	resync := func() (scanned []int) {
		h.list(links, h.now)
		for index, one := range h.veths {
			if one.scans.due {
				scanned = append(scanned, index)
			}
			one.scans.due, one.iface.Seen = false, true
		}
		return scanned
	}
	if first := resync(); len(first) != pods {
		t.Fatalf("the first resync scans %d new interfaces, want %d", len(first), pods)
	}
	count, most := make(map[int]int), 0
	for range 2 * scansApart {
		again := resync()
		for _, index := range again {
			count[index]++
		}
		most = max(most, len(again))
	}
	for index := range h.veths {
		if count[index] != 2 {
			t.Errorf("%d resyncs scan interface %d %d times, want 2", 2*scansApart, index, count[index])
		}
	}
	if most != 1 {
		t.Errorf("one resync scans %d of %d interfaces, want 1", most, pods)
	}
	h.veths[1000].iface.Seen = false
	if again := resync(); !slices.Contains(again, 1000) {
		t.Error("a resync does not scan an unseen interface")
	}
}
