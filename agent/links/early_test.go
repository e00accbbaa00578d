package links_test

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// Many interfaces are observed at once, before each has its turn to be attached to. When the watcher stops they are again, while it detaches
// from one after another and goes on to tell what changes.
func TestManyAreObservedEarly(t *testing.T) {
	const count = 20
	pod := manyVeths(t, count)
	stop := make(chan struct{})
	_, ended, wait := watchUntil(t, stop, links.Options{})
	states := make(map[string]links.State)
	has := func(state links.State) int {
		n := 0
		for _, s := range states {
			if s == state {
				n++
			}
		}
		return n
	}
	most := 0
	all := func(state links.State) func(links.Event) bool {
		return func(e links.Event) bool {
			if (e.Kind == links.Added || e.Kind == links.Changed) && strings.HasPrefix(e.Interface.Name, "old") {
				states[e.Interface.Name] = e.Interface.State
			}
			most = max(most, has(links.Early))
			return has(state) == count
		}
	}
	wait("all are attached", all(links.Attached))
	if most < count-1 {
		t.Errorf("%d of %d interfaces were observed early", most, count)
	}
	few := ownnetns.NewPod(t)
	addVeth(t, few, "few")
	wait("a single one is attached", func(e links.Event) bool {
		if e.Interface != nil && e.Interface.Name == "few" && e.Interface.State == links.Early {
			t.Error("a single one was observed early")
		}
		return attached("few")(e)
	})

	close(stop)
	wait("the first is released", func(e links.Event) bool { all(links.Early)(e); return has(links.Early) > 0 })
	inPod(t, pod, func() error {
		address, err := netlink.ParseAddr("10.1.1.77/32")
		must(t, err)
		peer, err := netlink.LinkByName("old3")
		must(t, err)
		return netlink.AddrAdd(peer, address)
	})
	wait("a new address meanwhile", func(e links.Event) bool { all(links.Early)(e); return holds(links.Changed, "old3", "10.1.1.77")(e) })
	wait("all are released", all(links.Early))
	<-ended
	for name := range states {
		old, err := netlink.LinkByName(name)
		must(t, err)
		left, err := link.QueryPrograms(link.QueryOptions{Target: old.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		must(t, err)
		if len(left.Programs) > 0 {
			t.Errorf("%s has %d programs", name, len(left.Programs))
		}
	}
}
