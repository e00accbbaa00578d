package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

const (
	// atOnce is how many sandboxes are made at a time.
	atOnce = 4
	seldom = 200 * time.Millisecond
)

// chains are the CNI plugins that pods are made by, each on a node of its own. With IPv6, ptp
// would wait for duplicate address detection for two seconds, in which all else is lost.
var chains = []struct {
	name    string
	plugin  map[string]any
	subnets []string
}{
	{"ptp, IPv4", map[string]any{"type": "ptp"}, []string{"10.99.0.0/23"}},
	{"bridge, IPv4 and IPv6", map[string]any{"type": "bridge", "bridge": "cbr0", "isGateway": true}, []string{"10.100.0.0/23", "fd00:100::/64"}},
}

// measureSandboxes runs a node's fill of pods by a real containerd: whether an agent slows
// them down, how soon it knows them by name, and what it uses for that and for having them.
func measureSandboxes(b *bench) {
	var sites []*site
	var agents []*lab.Agent
	for _, c := range chains {
		plugin := maps.Clone(c.plugin)
		plugin["ipam"] = cri.HostLocal(c.subnets...)
		n := b.Node("")
		r, err := cri.New(b.Lab, n, cri.Options{Plugins: []map[string]any{plugin}})
		b.Do(err, r.Start(b.Context()))
		s := &site{bench: b, name: c.name, node: n, runtime: r}
		s.inTurns()
		sites = append(sites, s)
	}
	for _, s := range sites {
		s.observed()
		agents = append(agents, s.agent)
	}
	for i, used := range b.use(agents, func() { b.pause(b.idle) }) {
		s := sites[i]
		s.removed()
		s.table(used)
	}
}

// site is a node with a containerd, and what was measured there.
type site struct {
	*bench
	name    string
	node    *lab.Node
	runtime *cri.Runtime
	agent   *lab.Agent
	pods    []*cri.Pod

	mu sync.Mutex
	// RunPodSandbox, in turns; until the pod is in the table by name.
	with, without, fromCall, fromReturn, fromUp []time.Duration
	// startCPU is the agent's, for those with.
	startCPU, removeCPU, removeTook, gone time.Duration
}

// observe starts an agent that gets names from the runtime, and waits until it is ready.
func (s *site) observe() {
	s.Helper()
	s.agent = s.Agent(s.node, "--cri-socket", s.runtime.Socket, "--log-level", "info")
}

// each does something for so many pods, some at a time.
func (s *site) each(count int, do func(i int) error) {
	s.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() error { return do(i) })
	}
	s.Do(group.Wait())
}

// run makes pods, and calls then for each, with those behind it going on.
func (s *site) run(prefix string, count int, then func(*cri.Pod) error) []*cri.Pod {
	s.Helper()
	all := make([]*cri.Pod, count)
	var after errgroup.Group
	s.each(count, func(i int) (err error) {
		name := fmt.Sprintf("%s-%d", prefix, i)
		all[i], err = s.runtime.RunPod(s.Context(), cri.PodOptions{Namespace: "bench", Name: name, UID: "uid-of-" + name})
		if err == nil {
			after.Go(func() error { return then(all[i]) })
		}
		return err
	})
	s.Do(after.Wait())
	return all
}

func (s *site) remove(pods []*cri.Pod) {
	s.Helper()
	s.each(len(pods), func(i int) error { return s.runtime.RemovePod(s.Context(), pods[i]) })
}

// inTurns fills the node with pods, with and without an agent in turns, so that what comes
// of the others that are there already hits both alike, and empties it.
func (s *site) inTurns() {
	s.Helper()
	var all []*cri.Pod
	for turn := range s.turns {
		fill := func() {
			all = append(all, s.run(fmt.Sprintf("turn%d", turn), s.sandboxes/s.turns, func(*cri.Pod) error { return nil })...)
		}
		took := &s.without
		before := len(all)
		// With, without, without, with.
		if turn%4 == 0 || turn%4 == 3 {
			took = &s.with
			s.observe()
			s.knows(all, seldom)
			s.startCPU += s.during(s.agent, func() {
				fill()
				s.knows(all, seldom)
			})
			s.Do(s.agent.Kill())
		} else {
			fill()
		}
		for _, p := range all[before:] {
			*took = append(*took, p.Returned.Sub(p.Called))
		}
	}
	s.remove(all)
}

// knows waits until the agent has all addresses of the pods by name, and no others. It polls rarely
// where the agent's CPU time is measured.
func (s *site) knows(pods []*cri.Pod, every time.Duration) {
	s.Helper()
	addresses := 0
	for _, p := range pods {
		addresses += len(p.IPs)
	}
	s.eventually(func() error {
		s.pause(every)
		status, named := s.status(s.agent), 0
		list, _ := status["interfaces"].([]any)
		for _, entry := range list {
			if i, _ := entry.(map[string]any); i["pod"] != nil {
				named++
			}
		}
		if got := announced(status); got != addresses || named != len(pods) || len(list) != len(pods) {
			return fmt.Errorf("the agent has %d of %d addresses, of %d interfaces, %d of %d of them by name", got, addresses, len(list), named, len(pods))
		}
		return nil
	})
}

// observed fills the node with pods under the eyes of an agent, and notes how soon it has
// each by name.
func (s *site) observed() {
	s.Helper()
	s.observe()
	ups := s.followUps()
	s.pods = s.run("pod", s.sandboxes, func(pod *cri.Pod) error {
		ctx, cancel := context.WithTimeout(s.Context(), lab.Patience(4*patience))
		defer cancel()
		b, err := s.agent.Client.WaitBinding(ctx, pod.IPs[0], func(b lab.Binding) bool {
			return b.Pod != nil && b.Pod.Name == pod.Name && b.Netns == pod.NetnsName()
		})
		named := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fromCall, s.fromReturn = append(s.fromCall, named.Sub(pod.Called)), append(s.fromReturn, named.Sub(pod.Returned))
		if up, ok := ups.Load(b.Interface); ok {
			s.fromUp = append(s.fromUp, named.Sub(up.(time.Time)))
		}
		return err
	})
	s.knows(s.pods, seldom)
}

// followUps notes when interfaces of the node come up, by name.
func (s *site) followUps() *sync.Map {
	s.Helper()
	var ups sync.Map
	updates, done := make(chan netlink.LinkUpdate, 1024), make(chan struct{})
	// The socket stays in the netns that it is opened in.
	s.Do(s.node.Exec(func() error {
		return netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}})
	}))
	s.Cleanup(func() { close(done) })
	go func() {
		for update := range updates {
			if update.Attrs().OperState == netlink.OperUp {
				ups.LoadOrStore(update.Attrs().Name, time.Now())
			}
		}
	}()
	return &ups
}

// removed empties the node under the eyes of the agent.
func (s *site) removed() {
	s.Helper()
	s.removeCPU = s.during(s.agent, func() {
		began := time.Now()
		s.remove(s.pods)
		s.removeTook = time.Since(began)
		s.knows(nil, 5*time.Millisecond)
		s.gone = time.Since(began) - s.removeTook
	})
}

func (s *site) table(used usage) {
	s.Helper()
	spread := func(what string, all []time.Duration) {
		if len(all) == 0 {
			s.Fatal(errors.New("not seen: " + what))
		}
		s.row(what, "", "%.2f s, p99 %.2f s, slowest %.2f s", median(all).Seconds(), percentile(all, 99).Seconds(), percentile(all, 100).Seconds())
	}
	goal := ""
	if len(s.pods) >= 200 {
		goal = "≤ 40 MB, idle ≤ 0.5%"
	}
	s.title("%d SANDBOXES BY CONTAINERD, %d AT ONCE (%s, silent)", len(s.pods), atOnce, s.name)
	spread("RunPodSandbox without an agent", s.without)
	spread("RunPodSandbox with an agent, in turns", s.with)
	spread("the call → in the table by name", s.fromCall)
	spread("its return → in the table by name", s.fromReturn)
	spread("its interface up → in the table by name", s.fromUp)
	s.row("the agent's CPU for a new sandbox", "", "%.1f ms", s.startCPU.Seconds()*1e3/float64(len(s.with)))
	s.row(fmt.Sprintf("the agent with all of them, idle %s", s.idle), goal, "%.1f MB, idle %.2f%%", used.memory/1e6, 100*used.cpu)
	s.row("the agent's CPU for a removed sandbox", "", "%.1f ms", s.removeCPU.Seconds()*1e3/float64(len(s.pods)))
	s.row("all removed → nothing left in the table", "", "%.3f s, after %.1f s", s.gone.Seconds(), s.removeTook.Seconds())
}
