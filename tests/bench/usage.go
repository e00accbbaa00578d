package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// measureUsage looks at agents on nodes of several sizes, all at the same time: a process's
// CPU time is its own, and idle agents are in nobody's way.
func measureUsage(ctx context.Context, s settings) ([]block, error) {
	b := block{title: fmt.Sprintf("AN AGENT: MEMORY, CPU OF A CORE (pods of two addresses, %s silent, %s a packet a second each)", s.idle, s.talk)}
	err := inLab(ctx, func(l *lab.Lab) error {
		var nodes []*populated
		for _, size := range s.pods {
			p, err := populate(l, size)
			if err != nil {
				return fmt.Errorf("%d pods: %w", size, err)
			}
			nodes = append(nodes, p)
		}
		for _, p := range nodes {
			defer p.end()
			if err := p.observe(ctx); err != nil {
				return fmt.Errorf("%d pods: %w", len(p.pods), err)
			}
		}
		idle, err := usageDuring(nodes, func() error { return pause(ctx, s.idle) })
		if err != nil {
			return err
		}
		talking, err := usageDuring(nodes, func() error { return talk(ctx, nodes, s.talk) })
		if err != nil {
			return err
		}
		for i, p := range nodes {
			memory := max(idle[i].memory, talking[i].memory)
			r := row{what: fmt.Sprintf("%d pods", len(p.pods)), figure: fmt.Sprintf("%.1f MB, idle %.2f%%, talking %.2f%%",
				float64(memory)/1e6, 100*idle[i].cpu, 100*talking[i].cpu)}
			if len(p.pods) == 250 {
				r.goal = "≤ 40 MB, idle ≤ 0.5%"
			}
			b.rows = append(b.rows, r)
		}
		return nil
	})
	return []block{b}, err
}

// populated is a node with pods.
type populated struct {
	node  *lab.Node
	pods  []*lab.Pod
	agent *lab.Agent
}

// populate makes a node with so many silent pods, at most 250.
func populate(l *lab.Lab, size int) (*populated, error) {
	n, err := l.AddNode("")
	if err != nil {
		return nil, err
	}
	p := &populated{node: n, pods: make([]*lab.Pod, size)}
	var group errgroup.Group
	group.SetLimit(4)
	for i := range size {
		group.Go(func() (err error) {
			last := byte(2 + i)
			p.pods[i], err = n.AddPod(fmt.Sprintf("%s-pod%d", n.ShortName(), i), lab.PodOptions{
				Addrs: []netip.Addr{n.IPv4(last), n.IPv6(last)}, Silent: true,
			})
			return err
		})
	}
	return p, group.Wait()
}

// observe starts an agent and waits until it has heard of all addresses.
func (p *populated) observe(ctx context.Context) (err error) {
	if p.agent, err = p.node.StartAgent("--log-level", "info"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	if err := p.agent.WaitReady(ctx); err != nil {
		return err
	}
	for {
		status, err := p.agent.Client.Status(ctx)
		if err != nil {
			return err
		}
		byEvidence, _ := status["bindingsByEvidence"].(map[string]any)
		if announced, _ := byEvidence["announced"].(float64); int(announced) >= 2*len(p.pods) {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the addresses of %d pods: %w; there are %v\n%s", len(p.pods), err, byEvidence, lastWords(p.agent))
		}
	}
}

// end kills the agent. The lab would ask it to detach from all pods within five seconds, which
// is too short for many pods on a busy machine; here the pods go, too.
func (p *populated) end() {
	if p.agent != nil {
		_ = p.agent.Kill()
	}
}

// usage is what an agent used: the share of a core, and bytes at the end.
type usage struct {
	cpu    float64
	memory int
}

// usageDuring measures all agents while f runs.
func usageDuring(nodes []*populated, f func() error) ([]usage, error) {
	all := make([]usage, len(nodes))
	before := make([]time.Duration, len(nodes))
	var err error
	began := time.Now()
	for i, p := range nodes {
		if before[i], err = cpuTime(p.agent.PID()); err != nil {
			return nil, err
		}
	}
	if err := f(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	for i, p := range nodes {
		after, err := cpuTime(p.agent.PID())
		if err != nil {
			return nil, err
		}
		all[i].cpu = (after - before[i]).Seconds() / took.Seconds()
		if all[i].memory, err = residentBytes(p.agent.PID()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// talk lets every pod send a datagram a second into the world, from its IPv4 address, evenly
// spread.
func talk(ctx context.Context, nodes []*populated, d time.Duration) error {
	// The world ends at the switch, see package lab.
	world := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), 9)
	var conns []*net.UDPConn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for _, n := range nodes {
		for _, p := range n.pods {
			c, err := p.DialUDP(p.Addrs()[0], world)
			if err != nil {
				return err
			}
			conns = append(conns, c)
		}
	}
	tick := time.NewTicker(time.Second / time.Duration(len(conns)))
	defer tick.Stop()
	end := time.After(d)
	for next := 0; ; next = (next + 1) % len(conns) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-tick.C:
		}
		if _, err := conns[next].Write([]byte("dupip bench")); err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) {
			return fmt.Errorf("send: %w", err)
		}
	}
}
