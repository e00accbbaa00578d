package netns_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dupip/dupip/agent/netns"
)

func TestListNamed(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "run/netns")
	must(t, os.MkdirAll(dir, 0o700))
	empty, err := netns.ListNamed(root)
	must(t, err)
	if empty[0].Missing || len(empty[0].Namespaces)+len(empty[0].Plain) > 0 || !empty[1].Missing {
		t.Errorf("an empty directory and a missing one: %+v", empty)
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
