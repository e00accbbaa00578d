package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// kube is a node with a real containerd, and a conflict-free set of pods on it.
type kube struct {
	*cri.Runtime
	t *lab.T
}

func newKube(t *lab.T, plugin map[string]any) *kube {
	t.Helper()
	chain := map[string]any{"ipam": cri.HostLocal("10.99.0.0/24", "fd00:99::/64")}
	for k, v := range plugin {
		chain[k] = v
	}
	r, err := cri.New(t.Lab, t.Node(""), cri.Options{Plugins: []map[string]any{chain}})
	t.Do(err)
	return &kube{r, t}
}

// run makes pods side by side, as a kubelet does.
func (k *kube) run(prefix string, count int) []*cri.Pod {
	k.t.Helper()
	var wg sync.WaitGroup
	all, errs := make([]*cri.Pod, count), make([]error, count)
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		wg.Go(func() {
			all[i], errs[i] = k.RunPod(k.t.Context(), cri.PodOptions{Namespace: "shop", Name: name, UID: lab.UUIDOf(name)})
		})
	}
	wg.Wait()
	k.t.Do(errs...)
	for _, p := range all {
		if len(p.IPs) != 2 {
			k.t.Fatal(fmt.Errorf("pod %s has the addresses %v, want one of each family", p.Name, p.IPs))
		}
	}
	return all
}

func ref(p *cri.Pod) lab.PodRef {
	return lab.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// namedBindings waits until `dupip bindings -o json` has every address of the pods with
// the name of its pod.
func namedBindings(t *lab.T, a *lab.Agent, pods ...*cri.Pod) {
	t.Helper()
	t.Eventually("names of bindings", func() error {
		text, err := a.CLI(t.Context(), "bindings", "-o", "json")
		if err != nil {
			return err
		}
		var doc struct{ Bindings []lab.Binding }
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			return err
		}
		var errs []error
		for _, p := range pods {
			for _, ip := range p.IPs {
				i := slices.IndexFunc(doc.Bindings, func(b lab.Binding) bool { return b.IP == ip && b.Netns == p.NetnsName() })
				switch {
				case i < 0:
					errs = append(errs, fmt.Errorf("no binding of %v in netns %s", ip, p.NetnsName()))
				case doc.Bindings[i].Pod == nil || *doc.Bindings[i].Pod != ref(p):
					errs = append(errs, fmt.Errorf("the holder of %v is pod %+v, want %+v", ip, doc.Bindings[i].Pod, ref(p)))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// confirmedBetween waits until an address is a confirmed conflict of the holders with these names,
// the older first; an empty name is a holder without a pod.
func confirmedBetween(t *lab.T, a *lab.Agent, ip netip.Addr, want ...lab.PodRef) {
	t.Helper()
	t.Eventually("names of conflict", func() error {
		open, err := a.Client.Conflicts(t.Context(), false)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(open, func(c lab.Conflict) bool { return c.IP == ip && c.State == "confirmed" })
		if i < 0 {
			return fmt.Errorf("%v is no confirmed conflict", ip)
		}
		var got []lab.PodRef
		for _, h := range open[i].Holders {
			if h.Pod == nil {
				got = append(got, lab.PodRef{})
			} else {
				got = append(got, *h.Pod)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("holders of %v (-want +got):\n%s", ip, diff)
		}
		return nil
	})
}

// While the runtime is down, duplicates are still found, with the names that are known; pods that are
// made after its restart have names.
func TestPodsByNameRuntimeKilled(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "ptp"})
	l.Do(k.Start(t.Context()))
	a := l.Agent(k.Node, "--cri-socket", k.Socket)
	olderPods := k.run("older", 2)
	namedBindings(l, a, olderPods...)

	l.Do(k.Kill9())
	l.Pod(k.Node, "intruder", lab.PodOptions{Style: lab.Routed, Addrs: olderPods[0].IPs})
	for _, ip := range olderPods[0].IPs {
		confirmedBetween(l, a, ip, ref(olderPods[0]), lab.PodRef{})
	}
	l.Do(k.Start(t.Context()))
	newcomers := k.run("newcomer", 2)
	namedBindings(l, a, append(olderPods, newcomers...)...)
}

// An agent that is there before the runtime, as after a boot, has the names later.
func TestPodsByNameRuntimeLate(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "ptp"})
	a := l.Agent(k.Node, "--cri-socket", k.Socket)
	l.Do(k.Start(t.Context()))
	namedBindings(l, a, k.run("pod", 3)...)
}
