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

// A netns that no observed interface leads to is scanned twice when it is new, and then at every tenth
// resync, because a node may have hundreds. Devices that are added later are found.
func TestForeignNamespacesAreScannedInTurn(t *testing.T) {
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
	resync := func() {
		t.Helper()
		if err := w.resync(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 3 * scansApart
	for range rounds {
		resync()
	}
	if scans := w.unsupported.foreign[inode].scans; scans < 2 || scans > 2+rounds/scansApart {
		t.Errorf("%d scans in %d resyncs", scans, rounds)
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
	late := func(i Interface) bool { return i.Name == "late" && i.State == Unsupported }
	for range scansApart {
		resync()
	}
	if !slices.ContainsFunc(w.unsupported.found, late) {
		t.Errorf("a device that was added later is not found after %d resyncs: %+v", scansApart, w.unsupported.found)
	}
	resync()
	if !slices.ContainsFunc(w.unsupported.found, late) {
		t.Error("it is not listed without a scan")
	}
	path := w.unsupported.foreign[inode].path
	pod.Delete()
	resync()
	if w.unsupported.foreign[inode].path == path { // the inode may be another's by now
		t.Error("a deleted netns is remembered")
	}
}
