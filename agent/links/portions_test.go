package links_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// manyVeths makes veths into one pod, which are up.
func manyVeths(t *testing.T, count int) *ownnetns.Pod {
	t.Helper()
	pod := ownnetns.NewPod(t)
	for n := range count {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprint("old", n)
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name, PeerNamespace: netlink.NsPid(pod.Pid)}
		must(t, netlink.LinkAdd(veth))
		t.Cleanup(func() { _ = netlink.LinkDel(veth) })
		must(t, netlink.LinkSetUp(veth))
		inPod(t, pod, func() error {
			peer, err := netlink.LinkByName(attrs.Name)
			must(t, err)
			return netlink.LinkSetUp(peer)
		})
	}
	return pod
}

// keepChanging changes a link a thousand times a second until the returned function is called.
func keepChanging(t *testing.T, name string) (stop func()) {
	t.Helper()
	changed, err := netlink.LinkByName(name)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	changes.Go(func() {
		ticks := time.NewTicker(time.Millisecond)
		defer ticks.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			if err := netlink.LinkSetAlias(changed, fmt.Sprint(n)); err != nil {
				t.Error(err)
				return
			}
			<-ticks.C
		}
	})
	return func() { cancel(); changes.Wait() }
}

// While the watcher attaches to many interfaces, it handles events: a new pod does not wait for them, and an
// address that comes meanwhile is distinguished from those that were there, even if links change all the time.
func TestEventsWhileAttaching(t *testing.T) {
	const count = 80
	old := manyVeths(t, count)
	fresh := ownnetns.NewPod(t)
	stopChanging := keepChanging(t, "old0")
	defer stopChanging()
	w, wait := watch(t, links.Options{})
	views := make(map[string]*links.Interface)
	attachedOld, addresses := 0, 0
	ip := netip.MustParseAddr("10.1.1.77")
	follow := func(e links.Event) {
		if e.Kind != links.Added && e.Kind != links.Changed || !strings.HasPrefix(e.Interface.Name, "old") {
			return
		}
		before := views[e.Interface.Name]
		if before == nil && e.Interface.View.Holds(ip, 0, 0) {
			t.Errorf("%s was first scanned after the start", e.Interface.Name)
		}
		if e.Interface.State == links.Attached && (before == nil || before.State != links.Attached) {
			attachedOld++
		}
		if before != nil && e.Interface.View.Holds(ip, 0, 0) {
			addresses++
		}
		views[e.Interface.Name] = e.Interface
	}
	wait("the node's addresses", func(e links.Event) bool { follow(e); return e.Kind == links.HostAddresses })
	stopChanging()
	if len(views) != count || attachedOld > 0 {
		t.Errorf("%d of %d interfaces were added and %d attached, want all added and none attached", len(views), count, attachedOld)
	}
	// Nobody reads events now, so the watcher cannot finish meanwhile.
	if free := cap(w.Events()); attachedOld+free+10 > count {
		t.Fatalf("the watcher may attach to all %d", count)
	}
	inPod(t, old, func() error {
		for n := range count {
			peer, err := netlink.LinkByName(fmt.Sprint("old", n))
			must(t, err)
			address, err := netlink.ParseAddr("10.1.1.77/32")
			must(t, err)
			must(t, netlink.AddrAdd(peer, address))
		}
		return nil
	})
	addVeth(t, fresh, "fresh", "10.1.2.1/24")
	wait("the new pod is attached", func(e links.Event) bool { follow(e); return attached("fresh")(e) })
	wait("all are attached, and the address is found", func(e links.Event) bool { follow(e); return attachedOld == count && addresses == count })
}

// A host end that moved to another netns is detached, whatever the mode leaves on it.
func TestHostEndMovesAway(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod, other := ownnetns.NewPod(t), ownnetns.NewPod(t)
	veth := addVeth(t, pod, "pod1", "10.1.1.1/24")
	wait("pod1 attached", attached("pod1"))
	must(t, netlink.LinkSetNsPid(veth, other.Pid))
	wait("pod1 removed", named(links.Removed, "pod1"))
	inPod(t, other, func() error {
		moved, err := netlink.LinkByName("pod1")
		must(t, err)
		result, err := link.QueryPrograms(link.QueryOptions{Target: moved.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		must(t, err)
		if len(result.Programs) != 0 {
			t.Errorf("%d programs on the device that moved away", len(result.Programs))
		}
		return nil
	})
	again := addVethAt(t, ownnetns.NewPod(t), "pod2", veth.Index, "10.1.1.2/24")
	if e := wait("pod2 attached", attached("pod2")); e.Interface.Index != again.Index {
		t.Errorf("index %d, want %d", e.Interface.Index, again.Index)
	}
}
