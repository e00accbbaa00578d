package netns_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

func TestDoInNewRunsInsideAndComesBack(t *testing.T) {
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

func TestListNamed(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "run/netns")
	must(t, os.MkdirAll(dir, 0o700))
	empty, err := netns.ListNamed(root)
	must(t, err)
	if empty[0].Missing || len(empty[0].Namespaces)+len(empty[0].Plain) > 0 || !empty[1].Missing {
		t.Errorf("an empty folder and a missing one: %+v", empty)
	}
	must(t, os.WriteFile(filepath.Join(dir, "lost"), nil, 0o600))
	must(t, os.Symlink("/proc/self/ns/net", filepath.Join(dir, "self")))
	must(t, os.Symlink("/nowhere", filepath.Join(dir, "dangling")))
	named, err := netns.ListNamed(root)
	must(t, err)
	slices.Sort(named[0].Plain)
	if got := named[0]; !slices.Equal(got.Namespaces, []string{"self"}) || !slices.Equal(got.Plain, []string{"dangling", "lost"}) {
		t.Errorf("got %+v", got)
	}
}
