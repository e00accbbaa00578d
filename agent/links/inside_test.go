package links

import (
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
)

// The devices of a netns are listed twice when it is new, and then at every tenth resync, because a node may have
// hundreds. Those that are added later are found.
func TestNamespacesInTurn(t *testing.T) {
	pod := ownnetns.NewPod(t)
	info, err := pod.Open(t).Stat()
	if err != nil {
		t.Fatal(err)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	w, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.finder.Close()
	now := time.Now()
	resync := func() {
		t.Helper()
		now = now.Add(time.Second) // two looks have a pause between them
		if err := w.resync(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 3 * scansApart
	for range rounds {
		resync()
	}
	if looks := w.inside.namespaces[inode].looks; looks < 2 || looks > 2+rounds/scansApart {
		t.Errorf("%d looks in %d resyncs", looks, rounds)
	}

	attrs := netlink.NewLinkAttrs()
	attrs.Name = "parent"
	parent := &netlink.Veth{LinkAttrs: attrs, PeerName: "other"}
	if err := netlink.LinkAdd(parent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(parent) })
	attrs.Name, attrs.ParentIndex, attrs.Namespace = "late", parent.Attrs().Index, netlink.NsPid(pod.Pid)
	if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
		t.Fatal(err)
	}
	for range scansApart {
		resync()
	}
	late := func() bool {
		return slices.ContainsFunc(w.inside.unsupported(false), func(i Interface) bool { return i.Name == "late" && i.State == Unsupported })
	}
	if !late() {
		t.Errorf("a device that was added later is not found after %d resyncs: %+v", scansApart, w.inside.unsupported(false))
	}
	resync()
	if !late() {
		t.Error("it is not listed without a look")
	}
	path := w.inside.namespaces[inode].ref.Path
	pod.Delete()
	resync()
	if ns := w.inside.namespaces[inode]; ns != nil && ns.ref.Path == path { // the inode may be another's by now
		t.Error("a deleted netns is remembered")
	}
}
