package netns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestMain(m *testing.M) { ownnetns.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoRunsInsideAndComesBack(t *testing.T) {
	own, err := netns.Cookie()
	must(t, err)
	pod := ownnetns.NewPod(t).Open(t)
	var inside uint64
	must(t, netns.Do(pod, func() (err error) { inside, err = netns.Cookie(); return err }))
	if inside == own || inside == 0 {
		t.Errorf("cookie inside %d, own %d: want two different ones", inside, own)
	}
	after, err := netns.Cookie()
	must(t, err)
	if after != own {
		t.Errorf("cookie after Do is %d, want our own %d", after, own)
	}
	boom := errors.New("boom")
	if err := netns.Do(pod, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the function", err)
	}
}

// TestDoShowsNoOther: Finder.Refs, which lists processes, finds this one in its own netns, also while it visits others.
func TestDoShowsNoOther(t *testing.T) {
	testneeds.Root(t)
	own, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	var group errgroup.Group
	var all sync.WaitGroup // at the same time: there is no thread but the main one left
	for range 64 {
		all.Add(1)
		group.Go(func() error {
			entered := sync.OnceFunc(all.Done)
			defer entered()
			return netns.DoInNew(func() error {
				entered()
				all.Wait()
				shown, err := os.Readlink("/proc/self/ns/net")
				if err == nil && shown != own {
					err = fmt.Errorf("this process shows %s, want its own, %s", shown, own)
				}
				return err
			})
		})
	}
	must(t, group.Wait())
}

func TestDoInNewRunsInsideAndComesBack(t *testing.T) {
	testneeds.Root(t)
	own, err := netns.Cookie()
	must(t, err)
	var inside uint64
	boom := errors.New("boom")
	err = netns.DoInNew(func() error {
		inside, err = netns.Cookie()
		must(t, err)
		links, err := netlink.LinkList()
		must(t, err)
		if slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Type() == "veth" }) {
			t.Errorf("a netns that is not new: %v", links)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the function", err)
	}
	if inside == own || inside == 0 {
		t.Errorf("cookie inside %d, own %d: want two different ones", inside, own)
	}
	if after, err := netns.Cookie(); err != nil || after != own {
		t.Errorf("cookie after DoInNew is %d (%v), want our own %d", after, err, own)
	}
}

func TestDoWithAFileThatIsNoNetns(t *testing.T) {
	file, err := os.Open("/proc/self/status")
	must(t, err)
	defer file.Close()
	if err := netns.Do(file, func() error { t.Error("ran"); return nil }); err == nil {
		t.Error("no error")
	}
}

// The path may be any file: CookieAt neither blocks on it nor opens it for reading.
func TestCookieAt(t *testing.T) {
	pod := ownnetns.NewPod(t)
	file := pod.Open(t)
	var want uint64
	must(t, netns.Do(file, func() (err error) { want, err = netns.Cookie(); return err }))
	if got, err := netns.CookieAt(file.Name()); err != nil || got != want {
		t.Errorf("cookie %d (%v), want %d", got, err, want)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, "/nowhere", "/proc/self", "/proc/self/status", "/proc/self/ns/mnt"} {
		if got, err := netns.CookieAt(path); err == nil || got != 0 {
			t.Errorf("%s: cookie %d and no error", path, got)
		}
	}
}

func TestSearchFindsPeersByID(t *testing.T) {
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pod1"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}))
	veth, err := netlink.LinkByName("pod1")
	must(t, err)
	finder, err := netns.NewFinder()
	must(t, err)
	defer finder.Close()
	must(t, finder.Search())
	ref, ok := finder.Ref(veth.Attrs().NetNsID)
	if !ok || ref.Pid != pod.Pid {
		t.Fatalf("id %d leads to %+v, want pid %d", veth.Attrs().NetNsID, ref, pod.Pid)
	}
	file, err := os.Open(ref.Path)
	must(t, err)
	defer file.Close()
	view, err := netns.Scan(file, veth.Attrs().ParentIndex)
	must(t, err)
	if view.Peer != "eth0" {
		t.Errorf("peer %q, want eth0", view.Peer)
	}
}
