package pods_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/agent/pods"
)

// Which namespaces have a sandbox is known when all of its runtime were read; and whether there is a runtime.
func TestNamespacesOfSandboxes(t *testing.T) {
	paths := sandboxes(t, 3)
	box := func(n int, stopped bool) *fakeSandbox {
		return &fakeSandbox{id: fmt.Sprint("a", n), namespace: "shop", name: fmt.Sprint("web", n), path: paths[n], stopped: stopped}
	}
	f := newFake(t, box(0, false), box(1, true), box(2, false))
	f.sandboxes[0].name = "" // it has a netns, whatever its name is
	f.set("a2")
	r := start(t, pods.Options{Socket: f.socket})
	first, second, third := cookie(t, paths[0]), cookie(t, paths[1]), cookie(t, paths[2])
	expect := func(what string, settled bool, want map[uint64]bool) {
		t.Helper()
		r.eventually(what, func() error {
			got := r.Sandboxes()
			if diff := cmp.Diff(want, got.Netns); diff != "" || got.Settled != settled || got.None || got.Listed.IsZero() {
				return fmt.Errorf("%+v (-want +got):\n%s", got, diff)
			}
			return nil
		})
	}
	change := func(of ...*fakeSandbox) {
		f.mu.Lock()
		f.sandboxes = of
		f.mu.Unlock()
		r.Relist()
	}
	expect("the status of one is not read", false, map[uint64]bool{first: true, second: false})
	f.set()
	expect("all are read", true, map[uint64]bool{first: true, second: false, third: true})
	change(box(0, true), box(2, false))
	expect("one has stopped, one is gone", true, map[uint64]bool{first: false, third: true})
	for _, socket := range []string{"none", "/nowhere/cri.sock"} {
		r := start(t, pods.Options{Socket: socket})
		r.eventually(socket, func() error {
			if got := r.Sandboxes(); !got.None || !got.Listed.IsZero() {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
	}
	hanging := newFake(t)
	hanging.set("Version")
	silent := start(t, pods.Options{Socket: hanging.socket})
	silent.eventually("it hangs", func() error {
		if silent.Status().Error == "" {
			return fmt.Errorf("no error yet")
		}
		return nil
	})
	if silent.Sandboxes().None {
		t.Error("a runtime that hangs is none")
	}
}

// A netns whose name is asked for again is looked for as quickly as a new one.
func TestRenew(t *testing.T) {
	paths := sandboxes(t, 1)
	f := newFake(t)
	r := start(t, pods.Options{Socket: f.socket, Resync: time.Hour})
	r.connected(true)
	other := cookie(t, paths[0])
	r.Request(other)
	r.eventually("the quick lists", func() error { // the next pause is 5 s
		if n := f.lists.Load(); n < 7 {
			return fmt.Errorf("%d lists", n)
		}
		return nil
	})
	f.mu.Lock()
	f.sandboxes = []*fakeSandbox{{id: "a", namespace: "shop", name: "web", path: paths[0]}}
	f.mu.Unlock()
	began := time.Now()
	r.Renew(other)
	r.eventually("its name", func() error {
		if _, ok := r.Pod(other); !ok {
			return fmt.Errorf("no name")
		}
		return nil
	})
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("its name took %v", took)
	}
}
