package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
	"github.com/dupip/dupip/tests/soak/plan"
	"github.com/dupip/dupip/tests/soak/truth"
)

// atOnce is how many steps are done at the same time: enough for races between pods, and
// few enough for two cores.
const atOnce = 4

// soak is one play.
type soak struct {
	*lab.T
	seed    uint64
	nodes   []*lab.Node
	start   time.Time
	watcher *truth.Watcher
	journal *journal
	count   counts

	mu     sync.Mutex
	judge  *judge.Judge
	agents []*agent         // by node
	pods   map[int]*lab.Pod // that of the nested netns, if it has one; outer has the other
	outer  map[int]*lab.Pod
	inside map[int][]io.Closer // what runs in pods, and holds their netns
	deaf   map[judge.Holder][]netip.Addr
	slow   []answer
	up     time.Duration // when the last agent was ready that was restarted
	// keeping writes down what agents know of findings.
	keeping sync.WaitGroup
	// usage is what the agents take, at the beginning and at the end.
	before []lab.Usage
}

// newSoak starts the agents.
func newSoak(t testing.TB, seed uint64) *soak {
	s := &soak{T: lab.NewT(t), seed: seed, judge: judge.New(limits()), pods: make(map[int]*lab.Pod), outer: make(map[int]*lab.Pod)}
	s.inside, s.deaf = make(map[int][]io.Closer), make(map[judge.Holder][]netip.Addr)
	names := make([]string, nodes)
	started := s.Cluster(nodes, "--min-overlap", minOverlap.String())
	s.start = time.Now()
	s.journal = newJournal(s.T, s.start)
	for i, a := range started {
		s.nodes = append(s.nodes, a.Node)
		names[i] = a.Node.ShortName()
		s.agents = append(s.agents, &agent{Agent: a, name: names[i], all: []*lab.Agent{a}})
	}
	s.watcher = truth.New(s.Prefix(), names, s.start, s.snapshot)
	s.before = s.usages()
	return s
}

// usages are those of the agents that run now.
func (s *soak) usages() (all []lab.Usage) {
	for _, a := range s.agents {
		all = append(all, s.Usage(a.Process))
	}
	return all
}

// now is the time since the beginning.
func (s *soak) now() time.Duration { return time.Since(s.start) }

// play runs the steps of a plan, with a watcher, and then removes all pods.
func (s *soak) play(p *plan.Plan) {
	ctx, cancel := context.WithCancel(s.Context())
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
		s.judgeRest()
	}()
	watching.Go(func() { s.watch(ctx) })
	for _, a := range s.agents {
		client := a.Client // all agents of a node have the same socket
		watching.Go(func() { s.listen(ctx, a, client) })
	}

	stop := s.askForDeaf(ctx)
	s.perform(p)
	stop()
	s.journal.note(nil, nil, "the plan is over")
	s.removeAll()
	// What has ended may stay open for this long.
	end := time.NewTimer(max(limits().Over, limits().Suspicion) + 4*tick)
	defer end.Stop()
	<-end.C
}

// judgeRest judges the last reports.
func (s *soak) judgeRest() {
	now := s.now()
	if err := s.watcher.ReadAll(); err != nil {
		s.Errorf("seed %d: %v", s.seed, err)
	} else {
		s.advance(now)
	}
	s.keeping.Wait()
}

// perform does the steps, each when it is due and those before it are done.
func (s *soak) perform(p *plan.Plan) {
	done := make(map[int]chan struct{}, len(p.Steps))
	for _, step := range p.Steps {
		done[step.ID] = make(chan struct{})
	}
	hands := make(chan struct{}, atOnce)
	var working sync.WaitGroup
	began := s.now()
	for _, step := range p.Steps {
		if s.count.failed.Load() {
			break
		}
		time.Sleep(began + step.Due - s.now())
		working.Go(func() {
			defer close(done[step.ID])
			for _, id := range step.After {
				<-done[id]
			}
			if step.Kind != plan.Restart { // which takes seconds
				hands <- struct{}{}
				defer func() { <-hands }()
			}
			at := s.now()
			err := s.do(step)
			s.count.step(step.Kind, at-began-step.Due, s.now()-at)
			s.record(step, at, err)
		})
	}
	working.Wait()
}

// record writes a step down.
func (s *soak) record(step *plan.Step, at time.Duration, err error) {
	text := fmt.Sprintf("step %d: %v, took %.3f s", step.ID, step, (s.now() - at).Seconds())
	var names []string
	if step.Pod != nil {
		names = []string{s.podName(step.Pod)}
	}
	if err != nil {
		text += ": " + err.Error()
	}
	s.journal.noteAt(at, step.IPs, names, text)
	// A packet that cannot be sent is no error: routes come and go with addresses.
	if err != nil && step.Kind != plan.Send && s.count.failed.CompareAndSwap(false, true) {
		s.Errorf("seed %d: %s", s.seed, text)
	}
}

// podName is the name of a pod's netns without the prefix. The node's is the last part
// of it, for those who look at namespaces only.
func (s *soak) podName(p *plan.Pod) string {
	return fmt.Sprintf("p%d.%s", p.Number, s.nodes[p.Node].ShortName())
}

// nestedName is the name of the netns that a pod may make for its interface.
func (s *soak) nestedName(p *plan.Pod) string { return "nested-" + s.podName(p) }

// readPod reads what the pod has now.
func (s *soak) readPod(p *plan.Pod) error {
	return errors.Join(s.watcher.Read(s.Prefix()+s.podName(p)), s.watcher.Read(s.Prefix()+s.nestedName(p)))
}

func (s *soak) do(step *plan.Step) error {
	switch step.Kind {
	case plan.Restart:
		return s.restart(step)
	case plan.Send, plan.Forge:
		return s.change(step)
	}
	// Before and after, so that it is known well when something changed, and that two steps
	// between two ticks are seen as two.
	if err := s.readPod(step.Pod); err != nil {
		return err
	}
	if err := s.change(step); err != nil {
		return err
	}
	return s.readPod(step.Pod)
}

func (s *soak) change(step *plan.Step) error {
	if step.Kind == plan.PodStart {
		return s.startPod(step.Pod)
	}
	s.mu.Lock()
	pod := s.pods[step.Pod.Number]
	s.mu.Unlock()
	switch step.Kind {
	case plan.PodEnd:
		return s.endPod(step)
	case plan.Send:
		return send(pod, step.IPs)
	case plan.Mirror, plan.Deafen, plan.Hush:
		return s.lie(pod, step)
	case plan.Rename:
		return pod.Rename("net7")
	case plan.Nest:
		nested, err := pod.Nest(s.nestedName(step.Pod), "net7")
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pods[step.Pod.Number], s.outer[step.Pod.Number] = nested, pod
		return nested.Sysctl("ipv4/conf/all/promote_secondaries", "1")
	case plan.Forge:
		err := pod.Spoof(step.IPs...)
		for _, ip := range step.IPs {
			err = errors.Join(err, pod.Announce(ip))
		}
		return err
	}
	for _, ip := range step.IPs {
		if err := changeAddr(pod, step, ip); err != nil {
			return err
		}
	}
	return nil
}

// changeAddr gives a pod an address or takes it away.
func changeAddr(pod *lab.Pod, step *plan.Step, ip netip.Addr) error {
	prefix := netip.PrefixFrom(ip, ip.BitLen())
	switch add := step.Kind == plan.Add; {
	case add && step.Where == plan.OnBridge:
		return pod.Hide(ip)
	case step.Where == plan.OnBridge:
		return pod.Unhide()
	case step.Where == plan.InRoute:
		return errors.Join(pod.AddLocalRoute("lo", prefix, unix.RT_TABLE_LOCAL), pod.Announce(ip))
	case !add:
		return pod.DelAddr(ip)
	case step.Host:
		// Without the route on its node that other addresses of a routed pod get: it would
		// disconnect agents.
		return pod.AddAddrOn(pod.Interface, prefix)
	default:
		return pod.AddAddr(ip)
	}
}

// endPod removes a pod, and the netns that it may have made.
func (s *soak) endPod(step *plan.Step) (err error) {
	s.mu.Lock()
	pods := []*lab.Pod{s.pods[step.Pod.Number], s.outer[step.Pod.Number]}
	delete(s.pods, step.Pod.Number)
	delete(s.outer, step.Pod.Number)
	inside := s.inside[step.Pod.Number]
	delete(s.inside, step.Pod.Number)
	s.mu.Unlock()
	s.watcher.Guests(s.Prefix() + s.podName(step.Pod))
	for _, c := range inside {
		err = errors.Join(err, c.Close())
	}
	for _, p := range pods {
		switch {
		case p == nil:
		case step.Vanish:
			err = errors.Join(err, p.DeleteNetns())
		default:
			err = errors.Join(err, p.Delete())
		}
	}
	return err
}

func (s *soak) startPod(p *plan.Pod) error {
	o := lab.PodOptions{Addrs: slices.Clone(p.IPs), Silent: p.Silent, MAC: p.MAC}
	switch {
	case p.Guest != "":
		o = lab.PodOptions{Style: lab.Raw}
	case p.Routed:
		o.Style = lab.Routed
	}
	pod, err := s.nodes[p.Node].AddPod(s.podName(p), o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pods[p.Number] = pod
	s.mu.Unlock()
	if p.Guest != "" {
		return s.startGuests(pod, p)
	}
	// Else all of a subnet go with the first one.
	return pod.Sysctl("ipv4/conf/all/promote_secondaries", "1")
}

func send(p *lab.Pod, from []netip.Addr) error {
	for _, ip := range from {
		if err := p.SendUDP(ip, lab.ExternalAddr(ip), 1); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes all pods that are left.
func (s *soak) removeAll() {
	s.mu.Lock()
	inside := slices.Concat(slices.Collect(maps.Values(s.inside))...)
	left := slices.AppendSeq(slices.Collect(maps.Values(s.pods)), maps.Values(s.outer))
	clear(s.pods)
	clear(s.outer)
	clear(s.inside)
	s.mu.Unlock()
	for _, p := range left {
		s.watcher.Guests(p.Name)
	}
	for _, c := range inside {
		s.Do(c.Close())
	}
	for _, p := range left {
		s.Do(p.Delete(), s.watcher.Read(p.Name))
	}
}
