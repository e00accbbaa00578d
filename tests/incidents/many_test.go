package incidents

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/tests/lab"
)

// A full node: the agent has each pod under its name and in its netns, and suspects none. When the
// store is wiped the newcomers are found, and when all pods are gone the agent has no state of them.
//
// It keeps the machine busy, and other tests measure time: only its end is parallel.
func TestTwoHundredSandboxes(t *testing.T) {
	const olderPods, newcomers = 200, 10
	s := &testCluster{T: lab.NewT(t)}
	m := s.machine(options{
		plugin:  map[string]any{"type": "bridge", "bridge": "cbr0", "isGateway": true},
		subnets: []string{"10.99.0.0/24", "fd00:99::/64"},
	})
	s.startAgents(m)
	// The first pods pay for what an agent keeps, and the bridge stays.
	m.empty(m.fill("first", 4))
	s.Eventually("bindings", func() error { return m.checkBindings(nil) })
	before, err := m.footprint()
	s.Do(err)
	m.wipe() // host-local continues from the last address

	began := time.Now()
	old := m.fill("older", olderPods)
	made := time.Now()
	s.Eventually("bindings", func() error { return m.checkBindings(old) })
	full, err := m.footprint()
	s.Do(err)
	t.Logf("%d pods after %.1f s, all by name %.1f s later: %v", olderPods, made.Sub(began).Seconds(), time.Since(made).Seconds(), full)
	s.assertNoConflict(false)

	m.wipe()
	young := m.fill("newcomer", newcomers)
	all := s.duplicates(old, young)
	if len(all) != 2*newcomers {
		t.Fatalf("%d addresses have two holders, want %d: the play has failed", len(all), 2*newcomers)
	}
	sinceRun, sinceSeen := s.waitFound(all...)
	t.Logf("the slowest of %d duplicates: %.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen",
		len(all), sinceRun.Seconds(), sinceSeen.Seconds())
	s.Eventually("bindings", func() error { return m.checkBindings(append(old, young...)) })
	shared := make(map[netip.Addr]bool)
	for _, d := range all {
		shared[d.ip] = true
	}
	for _, e := range m.watch.Events() {
		if !shared[e.Conflict.IP] {
			t.Errorf("alarm for an address of one pod: %s", lab.FormatEvents([]lab.Event{e}))
		}
	}

	began = time.Now()
	m.empty(append(old, young...))
	removed := time.Now()
	s.Eventually("bindings", func() error { return m.checkBindings(nil) })
	t.Logf("removed after %.1f s, none bound %.3f s later", removed.Sub(began).Seconds(), time.Since(removed).Seconds())
	// At the next resync, within half a minute, its maps are cleared of what is gone.
	t.Parallel()
	var after footprint
	if err := lab.Poll(s.Context(), 40*time.Second+patience, func() (err error) {
		time.Sleep(250 * time.Millisecond) // to measure costs as much as a pod
		if after, err = m.footprint(); err != nil {
			return err
		}
		return after.exceeds(before)
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("before  %v\nfull    %v\nempty   %v", before, full, after)
}

// atOnce is how many pods fill and empty make and remove at a time.
const atOnce = 4

// fill makes pods.
func (m *machine) fill(prefix string, count int) []*pod {
	m.s.Helper()
	all := make([]*pod, count)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() (err error) {
			all[i], err = m.tryRun(named(fmt.Sprintf("%s-%d", prefix, i)))
			return err
		})
	}
	m.s.Do(group.Wait())
	return all
}

// empty removes pods.
func (m *machine) empty(pods []*pod) {
	m.s.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, p := range pods {
		group.Go(func() error { return m.RemovePod(m.s.Context(), p.Pod) })
	}
	m.s.Do(group.Wait())
}

// checkBindings returns an error unless the agent has each address of the pods in its netns and
// by its pod's name, and no other but the node's own.
func (m *machine) checkBindings(pods []*pod) error {
	type place struct {
		ip    netip.Addr
		netns string
	}
	want := make(map[place]lab.PodRef)
	for _, p := range pods {
		for _, ip := range p.IPs {
			want[place{ip, p.NetnsName()}] = p.ref()
		}
	}
	bindings, err := m.bindings("--local")
	if err != nil {
		return err
	}
	var errs []error
	right := 0
	for _, b := range bindings {
		pod, ok := want[place{b.IP, b.Netns}]
		switch {
		case b.Evidence == "host":
		case !ok:
			errs = append(errs, fmt.Errorf("%v is bound in netns %s, where no pod has it", b.IP, b.Netns))
		case b.Pod == nil || *b.Pod != pod:
			errs = append(errs, fmt.Errorf("the holder of %v is pod %+v, want %+v", b.IP, b.Pod, pod))
		default:
			right++
		}
	}
	if right != len(want) {
		errs = append(errs, fmt.Errorf("%d bindings are right, want %d", right, len(want)))
	}
	return errors.Join(errs[:min(len(errs), 10)]...)
}
