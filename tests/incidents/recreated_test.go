package incidents

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// hastyPlugin is a ptp whose DEL, while a file exists, releases the address and leaves the veth to
// end with its netns.
const hastyPlugin = `[ "$CNI_COMMAND" = DEL ] && [ -e %s ] && exec "$(dirname "$0")/host-local"
exec "$(dirname "$0")/ptp"
`

// Azure CNS #4350 (NodeSubnet): the sandbox of a crashing pod was made again and again under a new
// id, the old one's address was never released, and 32 of 32 leaked. The proposed clean-up may
// release addresses of running pods.
//
// Played: one pod's sandbox is recreated in a loop, with another address and with the same one, its
// predecessor removed at once or late; then the address of a running pod is released.
func TestI4RecreatedSandbox(t *testing.T) {
	const rounds = 8
	s := newTestCluster(t)
	hasty := filepath.Join(t.TempDir(), "hasty")
	m := s.machine(options{
		subnets: []string{"10.99.0.0/29"}, unheldAfter: "2s", // five addresses
		plugin: map[string]any{"type": "hasty"}, scripts: map[string]string{"hasty": fmt.Sprintf(hastyPlugin, hasty)},
	})
	s.startAgents(m)
	crashing := m.run(named("crashing"))

	crashing, ips := crashing.recreate(rounds, 0)
	if len(ips) != 5 {
		t.Fatalf("%d sandboxes had the addresses %v, want all five in turn: the play has failed", rounds, ips)
	}
	s.waitBindings(crashing)
	s.assertNoConflict(false)

	// Four more pods, and there is one address left.
	others := m.runMany("other", 4)
	crashing, ips = crashing.recreate(rounds, 0)
	if len(ips) != 1 {
		t.Fatalf("%d sandboxes had the addresses %v, want one: the play has failed", rounds, ips)
	}
	s.waitBindings(crashing)
	s.assertNoConflict(false)

	// A process holds the previous netns and ends late.
	crashing, _ = crashing.recreate(4, time.Second)
	s.waitBindings(crashing)
	s.assertNoConflict(false)

	// The veth and the address in it outlive the sandbox, too: a suspicion, and for so
	// short a time no conflict.
	s.Do(os.WriteFile(hasty, nil, 0o600))
	var longest time.Duration
	for range 5 {
		var both time.Duration
		crashing, both = crashing.overlap()
		longest = max(longest, both)
		s.resolved() // the next one is to be a suspicion of its own
	}
	s.Do(os.Remove(hasty))
	s.waitBindings(crashing)
	s.resolved()
	t.Logf("two sandboxes were seen with one address for %v at most", longest)
	if longest < 900*time.Millisecond { // else the kernel was too slow, and dupip right to call it a conflict
		s.assertNoConflict(true)
	}

	s.remove(others[1])
	s.assertFindings()
	s.freeAddrs(others[0])
	t.Logf("foreseen %.2f s after the address was freed", s.waitForeseen(others[0]).Seconds())
	newcomer := m.run(named("newcomer"))
	twice := s.duplicates(others[:1], []*pod{newcomer})
	sinceRun, sinceSeen := s.waitFound(twice...)
	t.Logf("%.2f s after RunPodSandbox was called, %.2f s after the newcomer was seen", sinceRun.Seconds(), sinceSeen.Seconds())
	t.Logf("$ dupip conflicts\n%s", m.dupip("conflicts"))
	m.explains(twice[0].ip, "has reserved it for shop/newcomer.")
	s.follow(m, lab.Follower{}, twice, newcomer)
	s.resolved()
	s.assertFindings()
}

// The same report from its other end: every sandbox leaks its address until there is none,
// and the clean-up frees all of them.
func TestI4LeakedAssignments(t *testing.T) {
	s := newTestCluster(t)
	lossy := filepath.Join(t.TempDir(), "lossy")
	s.Do(os.WriteFile(lossy, nil, 0o600))
	m := s.machine(options{
		subnets: []string{"10.99.0.0/27"}, unheldAfter: "2s", scripts: s.lossy(lossy),
	})
	s.startAgents(m)
	pods := m.runMany("pod", 3)
	s.waitBindings(pods...)
	s.assertFindings()
	m.leaks = true
	for attempt := uint32(0); ; attempt++ {
		if attempt == 10 {
			m.waitLeaked(10)
			m.waitLeft(16.0 / 29)
			t.Logf("$ dupip audit\n%s", m.dupip("audit"))
		}
		o := named("crashing")
		o.Attempt = attempt
		p, err := m.tryRun(o)
		if err != nil {
			if !strings.Contains(err.Error(), "no IP addresses available") {
				s.Do(err)
			}
			break
		}
		s.remove(p)
	}
	if booked := m.reservedAddrs(); len(booked) != 29 {
		t.Fatalf("%d addresses are booked, want all 29: the play has failed", len(booked))
	}
	s.Eventually("the last sandbox's end", func() error {
		bindings, err := m.bindings("--local")
		for _, b := range bindings {
			if b.Pod != nil && b.Pod.Name == "crashing" {
				return fmt.Errorf("%v is still bound to %s", b.IP, b.Pod.Name)
			}
		}
		return err
	})
	s.assertNoConflict(false)

	m.waitLeaked(26)
	m.waitLeft(0)

	m.wipe(pods...)
	t.Logf("foreseen %.2f s after the addresses were freed", s.waitForeseen(pods...).Seconds())
	m.waitLeaked(0)
	newcomers := m.runMany("newcomer", len(pods))
	s.waitFound(s.duplicates(pods, newcomers)...)
	t.Logf("$ dupip conflicts\n%s", m.dupip("conflicts"))
	s.remove(newcomers...)
	s.resolved()
	s.assertFindings()
}

// recreate ends a pod's sandbox and makes the next one, again and again, as a kubelet does when its
// first process ends. A process holds each previous netns until this long after the next sandbox is
// ready. It returns the last sandbox and the addresses that they have had.
func (p *pod) recreate(times int, late time.Duration) (*pod, []netip.Addr) {
	p.m.s.Helper()
	had := make(map[netip.Addr]bool)
	var ended sync.WaitGroup
	defer ended.Wait()
	for range times {
		end := func() {}
		if late > 0 {
			end = p.holdNetns()
		}
		p = p.next()
		ended.Go(func() {
			<-time.After(late)
			end()
		})
		for _, ip := range p.IPs {
			had[ip] = true
		}
	}
	return p, slices.Collect(maps.Keys(had))
}

// next ends a pod's sandbox and makes another.
func (p *pod) next() *pod {
	p.m.s.Helper()
	p.m.s.remove(p)
	o := p.PodOptions
	o.Attempt++
	return p.m.run(o)
}

// holdNetns has a process in the pod's netns.
func (p *pod) holdNetns() (end func()) {
	p.m.s.Helper()
	keeper := exec.Command("sleep", "120")
	p.m.s.Do(inside(p.Netns, keeper.Start))
	end = sync.OnceFunc(func() {
		_ = keeper.Process.Kill()
		_ = keeper.Wait()
	})
	p.m.s.Cleanup(end)
	return end
}

// overlap makes a pod's next sandbox while a process holds the previous netns, until dupip suspects
// the two. It returns for how long both existed.
func (p *pod) overlap() (next *pod, both time.Duration) {
	p.m.s.Helper()
	previous := p.hostInterface()
	began, end := time.Now(), p.holdNetns()
	gone := make(chan error, 1)
	go func() {
		e, err := p.m.watch.Wait(patience, func(e lab.Event) bool { return e.Type == "suspected" && e.Received.After(began) })
		end()
		if err == nil {
			err = lab.Poll(p.m.s.Context(), patience, func() error {
				if _, err := p.m.Node.Ifindex(previous); err == nil {
					return fmt.Errorf("%s is still there", previous)
				}
				both = time.Since(e.At)
				return nil
			})
		}
		gone <- err
	}()
	next = p.next()
	if err := <-gone; err != nil {
		p.m.s.Fatal(fmt.Errorf("a previous sandbox beside its successor: %w", err))
	}
	return next, both
}

// hostInterface is the host's end of a pod that has bindings.
func (p *pod) hostInterface() string {
	p.m.s.Helper()
	ctx, cancel := lab.WithTimeout(p.m.s.Context(), patience)
	defer cancel()
	b, err := p.m.agent.Client.WaitBinding(ctx, p.IPs[0], func(b lab.Binding) bool { return b.Netns == p.NetnsName() })
	p.m.s.Do(err)
	return b.Interface
}
