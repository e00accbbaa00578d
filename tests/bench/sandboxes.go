package main

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

// atOnce is how many sandboxes are made at a time.
const atOnce = 4

// chains are the CNI plugins that pods are made by, each on a node of its own. With IPv6, ptp
// would wait for duplicate address detection for two seconds, in which all else is lost.
var chains = []chain{
	{"ptp, IPv4", map[string]any{"type": "ptp"}, []string{"10.99.0.0/23"}},
	{"bridge, IPv4 and IPv6", map[string]any{"type": "bridge", "bridge": "cbr0", "isGateway": true}, []string{"10.100.0.0/23", "fd00:100::/64"}},
}

type chain struct {
	name    string
	plugin  map[string]any
	subnets []string
}

// measureSandboxes runs a node's fill of pods by a real containerd: whether an agent slows
// them down, how soon it knows them by name, and what it uses for that and for having them.
func measureSandboxes(ctx context.Context, s settings) ([]block, error) {
	var blocks []block
	err := inLab(ctx, func(l *lab.Lab) error {
		var sites []*site
		for _, c := range chains {
			p, err := newSite(ctx, l, c)
			if err != nil {
				return err
			}
			sites = append(sites, p)
			if err := p.inTurns(ctx, s.sandboxes, s.turns); err != nil {
				return fmt.Errorf("%s, in turns: %w", p.name, err)
			}
		}
		for _, p := range sites {
			if err := p.observed(ctx, s.sandboxes); err != nil {
				return fmt.Errorf("%s: %w\n%s", p.name, err, lastWords(p.agent))
			}
			// A kill, because the lab waits for five seconds only while an agent detaches.
			defer func() { _ = p.agent.Kill() }()
		}
		if err := idle(sites, func() error { return pause(ctx, s.idle) }); err != nil {
			return err
		}
		for _, p := range sites {
			if err := p.removed(ctx); err != nil {
				return fmt.Errorf("%s, removing: %w\n%s", p.name, err, lastWords(p.agent))
			}
			blocks = append(blocks, p.table(s))
		}
		return nil
	})
	return blocks, err
}

// site is a node with a containerd, and what was measured there.
type site struct {
	name    string
	node    *lab.Node
	runtime *cri.Runtime
	agent   *lab.Agent
	pods    []*cri.Pod

	with, without               []time.Duration // RunPodSandbox, in turns
	startCPU                    time.Duration   // of the agent, for those with
	fromCall, fromReturn        []time.Duration // until it is in the table by name
	fromUp                      []time.Duration
	idleShare                   float64
	memory                      int
	removeCPU, removeTook, gone time.Duration
}

func newSite(ctx context.Context, l *lab.Lab, c chain) (*site, error) {
	n, err := l.AddNode("")
	if err != nil {
		return nil, err
	}
	plugin := maps.Clone(c.plugin)
	plugin["ipam"] = cri.HostLocal(c.subnets...)
	r, err := cri.New(l, n, cri.Options{Plugins: []map[string]any{plugin}})
	if err != nil {
		return nil, err
	}
	return &site{name: c.name, node: n, runtime: r}, r.Start(ctx)
}

// observe starts an agent that asks the runtime for names, and waits until it is ready.
func (p *site) observe(ctx context.Context) (err error) {
	if p.agent, err = p.node.StartAgent("--cri-socket", p.runtime.Socket, "--log-level", "info"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.agent.WaitReady(ctx)
}

// run makes pods, some at a time, and calls then for each, with those behind it going on.
func (p *site) run(ctx context.Context, prefix string, count int, then func(context.Context, *cri.Pod) error) ([]*cri.Pod, error) {
	all := make([]*cri.Pod, count)
	var made, after errgroup.Group
	made.SetLimit(atOnce)
	for i := range count {
		made.Go(func() (err error) {
			name := fmt.Sprintf("%s-%d", prefix, i)
			all[i], err = p.runtime.RunPod(ctx, cri.PodOptions{Namespace: "bench", Name: name, UID: "uid-of-" + name})
			if err == nil && then != nil {
				after.Go(func() error { return then(ctx, all[i]) })
			}
			return err
		})
	}
	return all, errors.Join(made.Wait(), after.Wait())
}

// remove removes pods, some at a time.
func (p *site) remove(ctx context.Context, pods []*cri.Pod) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, pod := range pods {
		group.Go(func() error { return p.runtime.RemovePod(ctx, pod) })
	}
	return group.Wait()
}

// inTurns fills the node with pods, with and without an agent in turns, so that what comes
// of the others that are there already hits both alike, and empties it.
func (p *site) inTurns(ctx context.Context, count, turns int) error {
	var all []*cri.Pod
	for turn := range turns {
		// With, without, without, with.
		observed := turn%4 == 0 || turn%4 == 3
		var before time.Duration
		if observed {
			err := p.observe(ctx)
			if err == nil {
				err = p.knows(ctx, all)
			}
			if err == nil {
				before, err = cpuTime(p.agent.PID())
			}
			if err != nil {
				return err
			}
		}
		pods, err := p.run(ctx, fmt.Sprintf("turn%d", turn), count/turns, nil)
		if err != nil {
			return err
		}
		all = append(all, pods...)
		for _, pod := range pods {
			took := pod.Returned.Sub(pod.Called)
			if observed {
				p.with = append(p.with, took)
			} else {
				p.without = append(p.without, took)
			}
		}
		if observed {
			if err := p.knows(ctx, all); err != nil {
				return err
			}
			after, err := cpuTime(p.agent.PID())
			if err != nil {
				return err
			}
			p.startCPU += after - before
			if err := p.agent.Kill(); err != nil {
				return err
			}
		}
	}
	return p.remove(ctx, all)
}

// knows waits until the agent has all addresses of the pods by name. It asks seldom, so that
// asking is no part of what is measured.
func (p *site) knows(ctx context.Context, pods []*cri.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses := 0
	for _, pod := range pods {
		addresses += len(pod.IPs)
	}
	for {
		interfaces, named, announced, err := p.contents(ctx)
		if err != nil {
			return err
		}
		if announced == addresses && named == len(pods) {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %d addresses of %d pods: %w; the agent has %d, of %d interfaces, %d of them by name\n%s",
				addresses, len(pods), err, announced, interfaces, named, lastWords(p.agent))
		}
	}
}

// contents are how many interfaces the agent has, those with a pod's name, and the addresses
// that were announced.
func (p *site) contents(ctx context.Context) (interfaces, named, announced int, err error) {
	status, err := p.agent.Client.Status(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	list, _ := status["interfaces"].([]any)
	for _, entry := range list {
		if i, _ := entry.(map[string]any); i["pod"] != nil {
			named++
		}
	}
	byEvidence, _ := status["bindingsByEvidence"].(map[string]any)
	count, _ := byEvidence["announced"].(float64)
	return len(list), named, int(count), nil
}

// observed fills the node with pods under the eyes of an agent, and notes how soon it has
// each by name.
func (p *site) observed(ctx context.Context, count int) error {
	if err := p.observe(ctx); err != nil {
		return err
	}
	ups, end, err := followUps(p.node)
	if err != nil {
		return err
	}
	defer end()
	var mu sync.Mutex
	p.pods, err = p.run(ctx, "pod", count, func(ctx context.Context, pod *cri.Pod) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		b, err := p.agent.Client.WaitBinding(ctx, pod.IPs[0], func(b lab.Binding) bool {
			return b.Pod != nil && b.Pod.Name == pod.Name && b.Netns == pod.NetnsName()
		})
		if err != nil {
			return err
		}
		named, up := time.Now(), ups.of(b.Interface)
		mu.Lock()
		defer mu.Unlock()
		p.fromCall = append(p.fromCall, named.Sub(pod.Called))
		p.fromReturn = append(p.fromReturn, named.Sub(pod.Returned))
		if !up.IsZero() {
			p.fromUp = append(p.fromUp, named.Sub(up))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.knows(ctx, p.pods)
}

// idle measures all agents while f runs.
func idle(sites []*site, f func() error) error {
	var nodes []*populated
	for _, p := range sites {
		nodes = append(nodes, &populated{node: p.node, agent: p.agent})
	}
	all, err := usageDuring(nodes, f)
	if err != nil {
		return err
	}
	for i, p := range sites {
		p.idleShare, p.memory = all[i].cpu, all[i].memory
	}
	return nil
}

// removed empties the node under the eyes of the agent.
func (p *site) removed(ctx context.Context) error {
	before, err := cpuTime(p.agent.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := p.remove(ctx, p.pods); err != nil {
		return err
	}
	p.removeTook = time.Since(began)
	began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		interfaces, _, announced, err := p.contents(ctx)
		if err != nil {
			return err
		}
		if interfaces == 0 && announced == 0 {
			break
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait until nothing is left: %w; there are %d interfaces and %d addresses", err, interfaces, announced)
		}
	}
	p.gone = time.Since(began)
	after, err := cpuTime(p.agent.PID())
	p.removeCPU = after - before
	return err
}

func (p *site) table(s settings) block {
	spread := func(all []time.Duration) string {
		if len(all) == 0 {
			return "not seen"
		}
		return fmt.Sprintf("%.2f s, p99 %.2f s, slowest %.2f s", median(all).Seconds(), percentile(all, 99).Seconds(), percentile(all, 100).Seconds())
	}
	per := func(d time.Duration, n int) string {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1e3/float64(max(n, 1)))
	}
	goal := ""
	if len(p.pods) >= 200 {
		goal = "≤ 40 MB, idle ≤ 0.5%"
	}
	return block{
		title: fmt.Sprintf("%d SANDBOXES BY CONTAINERD, %d AT ONCE (%s, silent)", len(p.pods), atOnce, p.name),
		rows: []row{
			{"RunPodSandbox without an agent", spread(p.without), ""},
			{"RunPodSandbox with an agent, in turns", spread(p.with), ""},
			{"the call → in the table by name", spread(p.fromCall), ""},
			{"its return → in the table by name", spread(p.fromReturn), ""},
			{"its interface up → in the table by name", spread(p.fromUp), ""},
			{"the agent's CPU for a new sandbox", per(p.startCPU, len(p.with)), ""},
			{fmt.Sprintf("the agent with all of them, idle %s", s.idle), fmt.Sprintf("%.1f MB, idle %.2f%%", float64(p.memory)/1e6, 100*p.idleShare), goal},
			{"the agent's CPU for a removed sandbox", per(p.removeCPU, len(p.pods)), ""},
			{"all removed → nothing left in the table", fmt.Sprintf("%.3f s, after %.1f s", p.gone.Seconds(), p.removeTook.Seconds()), ""},
		},
	}
}

// ups are when the interfaces of a node came up.
type ups struct {
	mu sync.Mutex
	at map[string]time.Time
}

// followUps notes when interfaces of a node come up, until end is called.
func followUps(n *lab.Node) (u *ups, end func(), err error) {
	u = &ups{at: make(map[string]time.Time)}
	updates, done := make(chan netlink.LinkUpdate, 1024), make(chan struct{})
	// The socket stays in the netns that it is opened in.
	if err := n.Exec(func() error {
		return netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{ErrorCallback: func(error) {}})
	}); err != nil {
		return nil, nil, fmt.Errorf("subscribe to links: %w", err)
	}
	go func() {
		for update := range updates {
			now, attrs := time.Now(), update.Attrs()
			if attrs.OperState != netlink.OperUp {
				continue
			}
			u.mu.Lock()
			if _, known := u.at[attrs.Name]; !known {
				u.at[attrs.Name] = now
			}
			u.mu.Unlock()
		}
	}()
	return u, func() { close(done) }, nil
}

// of returns when an interface came up, zero if that was not seen.
func (u *ups) of(name string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at[name]
}
