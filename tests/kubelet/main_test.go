package kubelet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
var patience = lab.Patience(15 * time.Second)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// testNode is a node with a runtime that runs, and with what the DaemonSet is.
type testNode struct {
	*kubelet.Kubelet
	*lab.T
}

// Of one family: in each pod the real plugin waits 1.7 s for an IPv6 address.
var ptp = map[string]any{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}

func newTestNode(t *lab.T, plugin map[string]any) *testNode {
	t.Helper()
	r, err := cri.New(t.Lab, t.Node(""), cri.Options{Plugins: []map[string]any{plugin}})
	t.Do(err)
	t.Do(r.Start(t.Context()))
	k, err := kubelet.New(r, kubelet.Manifest)
	t.Do(err)
	return &testNode{k, t}
}

// agent runs the agent, waits until it is ready, and prints its log if the test fails.
func (s *testNode) agent(changes ...kubelet.Change) *kubelet.Agent {
	s.Helper()
	a := s.start(changes...)
	s.ready(a)
	s.Logf("%v from the start of the container to ready", time.Since(a.Started()).Round(time.Millisecond))
	return a
}

func (s *testNode) start(changes ...kubelet.Change) *kubelet.Agent {
	s.Helper()
	a, err := s.Run(s.Context(), s.Runtime.Node.ShortName(), changes...)
	s.Do(err)
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("log of the agent on %s:\n%s", a.Node.ShortName(), a.Log())
		}
	})
	return a
}

func (s *testNode) ready(a *kubelet.Agent) {
	s.Helper()
	ctx, cancel := lab.WithTimeout(s.Context(), patience)
	defer cancel()
	s.Do(a.WaitReady(ctx))
}

// pods makes pods side by side.
func (s *testNode) pods(prefix string, count int) []*cri.Pod {
	s.Helper()
	var wg sync.WaitGroup
	all, errs := make([]*cri.Pod, count), make([]error, count)
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		wg.Go(func() {
			all[i], errs[i] = s.Runtime.RunPod(s.Context(), cri.PodOptions{Namespace: "shop", Name: name, UID: "uid-of-" + name})
		})
	}
	wg.Wait()
	s.Do(errs...)
	return all
}

func ref(p *cri.Pod) lab.PodRef {
	return lab.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// bound waits until the agent has every address of the pods, with the names of pod and netns, in the
// output of `dupip bindings` inside the container.
func (s *testNode) bound(a *kubelet.Agent, pods ...*cri.Pod) {
	s.Helper()
	s.Eventually("bindings", func() error {
		var doc struct{ Bindings []lab.Binding }
		if err := query(s.T, a, &doc, "bindings"); err != nil {
			return err
		}
		var errs []error
		for _, p := range pods {
			if len(p.IPs) == 0 {
				return fmt.Errorf("pod %s has no address", p.Name)
			}
			for _, ip := range p.IPs {
				if !slices.ContainsFunc(doc.Bindings, func(b lab.Binding) bool {
					return b.IP == ip && b.Netns == p.NetnsName() && b.Pod != nil && *b.Pod == ref(p)
				}) {
					errs = append(errs, fmt.Errorf("no binding of %v in netns %s with the name of %s", ip, p.NetnsName(), p.Name))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// duplicate is an address that two pods have.
type duplicate struct {
	ip              netip.Addr
	older, newcomer *cri.Pod
}

// duplicates are the addresses that newcomers have been given again. One pod's may be those
// of two olderPods: host-local gives out each family by itself.
func (s *testNode) duplicates(olderPods, newcomers []*cri.Pod) (all []duplicate) {
	s.Helper()
	for _, newcomer := range newcomers {
		for _, ip := range newcomer.IPs {
			i := slices.IndexFunc(olderPods, func(p *cri.Pod) bool { return slices.Contains(p.IPs, ip) })
			if i < 0 {
				s.Fatal(fmt.Errorf("no older pod has %v of %s: the store was not wiped", ip, newcomer.Name))
			}
			all = append(all, duplicate{ip, olderPods[i], newcomer})
		}
	}
	return all
}

// confirmed waits until `dupip conflicts` inside the container has all of them, confirmed
// and with both names, and no other, and returns their ids.
func (s *testNode) confirmed(a *kubelet.Agent, all []duplicate) map[netip.Addr]string {
	s.Helper()
	ids := make(map[netip.Addr]string)
	s.Eventually("conflicts", func() error {
		var doc struct{ Conflicts []lab.Conflict }
		if err := query(s.T, a, &doc, "conflicts"); err != nil {
			return err
		}
		var errs []error
		for _, d := range all {
			i := slices.IndexFunc(doc.Conflicts, func(c lab.Conflict) bool {
				return c.IP == d.ip && c.State == "confirmed" && namesPod(c, d.older) && namesPod(c, d.newcomer)
			})
			if i < 0 {
				errs = append(errs, fmt.Errorf("%v is no confirmed conflict of %s and %s", d.ip, d.older.Name, d.newcomer.Name))
				continue
			}
			ids[d.ip] = doc.Conflicts[i].ID
		}
		if len(errs) == 0 && len(doc.Conflicts) != len(ids) {
			errs = append(errs, fmt.Errorf("%d conflicts are open, want %d", len(doc.Conflicts), len(ids)))
		}
		return errors.Join(errs...)
	})
	return ids
}

func namesPod(c lab.Conflict, p *cri.Pod) bool {
	return slices.ContainsFunc(c.Holders, func(b lab.Binding) bool {
		return b.Netns == p.NetnsName() && b.Pod != nil && *b.Pod == ref(p)
	})
}

// query runs a command in the container and reads the document that it prints.
func query(t *lab.T, a *kubelet.Agent, doc any, command ...string) error {
	done, err := a.Exec(t.Context(), append(append([]string{"dupip"}, command...), "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(done.Stdout), doc); err != nil {
		return fmt.Errorf("dupip %v: %w; it printed %q, and %q", command, err, done.Stdout, done.Stderr)
	}
	return nil
}

// check is one line of `dupip doctor`.
type check struct{ Name, Status, Finding, Advice string }

// doctor are the checks of `dupip doctor` inside the container, by name.
func doctor(t *lab.T, a *kubelet.Agent) map[string]check {
	t.Helper()
	var doc struct{ Checks []check }
	t.Do(query(t, a, &doc, "doctor"))
	checks := make(map[string]check)
	for _, c := range doc.Checks {
		checks[c.Name] = c
	}
	if len(checks) == 0 {
		t.Fatal(errors.New("dupip doctor has checked nothing"))
	}
	return checks
}
