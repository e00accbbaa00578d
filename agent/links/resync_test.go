package links

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/bpf"
)

// A pod that was seen is looked at again in its turn, and not all of a node's pods at once:
// nothing tells of the name that a runtime gives to a netns later.
func TestSeenPodsAreLookedAtInTurn(t *testing.T) {
	const pods = 3
	observer, err := bpf.Load(bpf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { observer.Close() })
	w, err := New(Options{Observer: observer, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.finder.Close)
	for n := range pods {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Index = fmt.Sprintf("pod%d", n), 1000+n
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(ownnetns.NewPod(t).Pid)}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	}
	// looks are the interfaces that a resync wants looked at; each look then succeeds.
	looks := func() (all []int) {
		t.Helper()
		if err := w.resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for index, one := range w.tracked {
			if one.dirty {
				all = append(all, index)
			}
			one.dirty, one.iface.Seen = false, true
		}
		return all
	}
	if first := looks(); len(first) != pods {
		t.Fatalf("%d interfaces are looked at when they are new, want %d", len(first), pods)
	}
	count, most := make(map[int]int), 0
	for range 2 * looksApart {
		again := looks()
		for _, index := range again {
			count[index]++
		}
		most = max(most, len(again))
	}
	for index := range w.tracked {
		if count[index] != 2 {
			t.Errorf("interface %d is looked at %d times in %d resyncs, want 2", index, count[index], 2*looksApart)
		}
	}
	if most != 1 {
		t.Errorf("%d of %d are looked at in one resync, want 1", most, pods)
	}
	one := w.tracked[1000]
	one.iface.Seen = false
	if err := w.resync(t.Context()); err != nil || !one.dirty {
		t.Errorf("who is not seen waits for its turn (%v)", err)
	}
}
