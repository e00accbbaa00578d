package links_test

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// The watcher lists ignored interfaces as unobserved and does not attach to them. SetIgnore applies to
// existing interfaces.
func TestIgnoredInterfaces(t *testing.T) {
	prefix := func(p string) func(string) bool {
		return func(name string) bool { return strings.HasPrefix(name, p) }
	}
	first, second := ownnetns.NewPod(t), ownnetns.NewPod(t)
	one := addVeth(t, first, "test1", "10.1.1.1/24")
	two := addVeth(t, second, "pod2", "10.1.1.2/24")
	programs := func(index int) int {
		result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
		must(t, err)
		return len(result.Programs)
	}
	ignored := func(name string) func(links.Event) bool {
		return func(e links.Event) bool {
			if e.Kind != links.Unobserved {
				return false
			}
			var names []string
			for _, i := range e.Unobserved {
				if i.State == links.Ignored && i.Reason != "" {
					names = append(names, i.Name)
				}
			}
			return strings.Join(names, " ") == name
		}
	}
	w, wait := watch(t, links.Options{}, func(w *links.Watcher) { w.SetIgnore(prefix("test")) })
	wait("pod2 added", func(e links.Event) bool {
		if e.Kind == links.Added && e.Interface.Name == "test1" {
			t.Error("the ignored interface was announced")
		}
		return named(links.Added, "pod2")(e)
	})
	if n := programs(one.Index); n != 0 {
		t.Errorf("%d programs on the ignored interface", n)
	}
	// An interface may get an ignored name later.
	w.SetIgnore(prefix("pod"))
	seen := map[string]bool{}
	wait("they have changed roles", func(e links.Event) bool {
		switch {
		case named(links.Removed, "pod2")(e):
			seen["pod2 removed"] = true
		case attached("test1")(e):
			seen["test1 attached"] = true
		case ignored("pod2")(e):
			seen["pod2 counted"] = true
		}
		return len(seen) == 3
	})
	if programs(one.Index) != 1 || programs(two.Index) != 0 {
		t.Errorf("programs: %d on test1, %d on pod2; want 1 and 0", programs(one.Index), programs(two.Index))
	}
	third := ownnetns.NewPod(t)
	addVeth(t, third, "pod3", "10.1.1.3/24")
	wait("a new one is counted at once", ignored("pod2 pod3"))
	third.Delete()
	w.SetIgnore(nil)
	wait("pod2 is back", named(links.Added, "pod2"))
}
