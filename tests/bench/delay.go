package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// clusterNodes is more than an address has keepers, so that the keepers are others' nodes.
const clusterNodes = 5

// measureDelay makes duplicates on one node, and across the nodes of a cluster, some at a
// time, and measures how long it takes from the moment the newcomer's interface comes up,
// before which it can have sent nothing, until its agent suspects and until it confirms.
// The agent's attaching is part of it.
func measureDelay(ctx context.Context, s settings) ([]block, error) {
	one, err := measureDelays(ctx, s, 1, "A DUPLICATE ON ONE NODE", "p99 ≤ 250 ms", "p99 ≤ 1.5 s")
	if err != nil {
		return nil, err
	}
	across, err := measureDelays(ctx, s, clusterNodes,
		fmt.Sprintf("A DUPLICATE ON TWO OF %d NODES", clusterNodes), "p99 ≤ 1 s", "p99 ≤ 2.5 s")
	if err != nil {
		return []block{one}, err
	}
	return []block{one, across}, nil
}

func measureDelays(ctx context.Context, s settings, nodes int, title, toSuspect, toConfirm string) (block, error) {
	var suspected, confirmed []time.Duration
	err := inLab(ctx, func(l *lab.Lab) error {
		posts, err := observeNodes(ctx, l, nodes)
		if err != nil {
			return err
		}
		for wave := range s.waves {
			found, err := duplicateWave(ctx, posts, wave*s.wave, s.wave)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, lastWords(posts[0].agent))
			}
			for _, f := range found {
				suspected, confirmed = append(suspected, f.suspected), append(confirmed, f.confirmed)
			}
		}
		return nil
	})
	if err != nil {
		return block{}, err
	}
	b := block{title: fmt.Sprintf("%s, from its interface coming up (%d duplicates, %d at a time)", title, len(suspected), s.wave)}
	for _, r := range []struct {
		what string
		all  []time.Duration
		goal string
	}{{"suspected", suspected, toSuspect}, {"confirmed, --min-overlap 1s", confirmed, toConfirm}} {
		b.rows = append(b.rows, row{r.what, fmt.Sprintf("%.3f s, p99 %.3f s", median(r.all).Seconds(), percentile(r.all, 99).Seconds()), r.goal})
	}
	return b, nil
}

// post is a node with its agent.
type post struct {
	node  *lab.Node
	agent *lab.Agent
	watch *lab.Watch
}

// observeNodes makes nodes with agents, which are one cluster if there are several.
func observeNodes(ctx context.Context, l *lab.Lab, count int) ([]post, error) {
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var posts []post
	for range count {
		n, err := l.AddNode("")
		if err != nil {
			return nil, err
		}
		flags := []string{"--log-level", "info"}
		if count > 1 {
			first := n
			if len(posts) > 0 {
				first = posts[0].node
			}
			flags = append(flags, "--bind", n.Uplink().String(), "--join", first.Uplink().String())
		}
		a, err := n.StartAgent(flags...)
		if err != nil {
			return nil, err
		}
		posts = append(posts, post{node: n, agent: a})
	}
	for i := range posts {
		p := &posts[i]
		if err := p.agent.WaitReady(ready); err != nil {
			return nil, err
		}
		if count > 1 {
			if err := p.agent.WaitMembers(ready, count); err != nil {
				return nil, err
			}
		}
		var err error
		if p.watch, err = p.agent.Watch(ctx); err != nil {
			return nil, err
		}
	}
	return posts, nil
}

// finding is how long one duplicate took.
type finding struct{ suspected, confirmed time.Duration }

// duplicateWave makes some duplicates at once, waits until they are confirmed, and removes
// them. The elder and the newcomer are on neighbouring nodes of the list.
func duplicateWave(ctx context.Context, posts []post, first, count int) ([]finding, error) {
	var elders, newcomers []*lab.Pod
	at := func(number int) (elder, newcomer post) {
		return posts[number%len(posts)], posts[(number+1)%len(posts)]
	}
	for number := first; number < first+count; number++ {
		elder, _ := at(number)
		p, err := elder.node.AddPod(fmt.Sprintf("elder%d", number), duplicate(posts[0].node, number))
		if err != nil {
			return nil, err
		}
		elders = append(elders, p)
	}
	known, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, p := range elders {
		elder, newcomer := at(first + i)
		if _, err := elder.agent.Client.WaitBinding(known, p.Addrs()[0], func(lab.Binding) bool { return true }); err != nil {
			return nil, err
		}
		p, err := newcomer.node.AddPod(fmt.Sprintf("newcomer%d", first+i), duplicate(posts[0].node, first+i))
		if err != nil {
			return nil, err
		}
		newcomers = append(newcomers, p)
	}
	var found []finding
	for i, p := range newcomers {
		_, newcomer := at(first + i)
		suspected, err := waitEvent(ctx, newcomer.watch, "suspected", p.Addrs()[0])
		if err != nil {
			return nil, err
		}
		confirmed, err := waitEvent(ctx, newcomer.watch, "confirmed", p.Addrs()[0])
		if err != nil {
			return nil, err
		}
		found = append(found, finding{suspected.At.Sub(p.Started), confirmed.At.Sub(p.Started)})
	}
	for i := range elders {
		for _, p := range []*lab.Pod{elders[i], newcomers[i]} {
			if err := p.Delete(); err != nil {
				return nil, err
			}
		}
	}
	return found, ctx.Err()
}

// waitEvent waits for an event of one type about one address.
func waitEvent(ctx context.Context, w *lab.Watch, eventType string, ip netip.Addr) (lab.Event, error) {
	for deadline := time.Now().Add(patience); ; {
		event, err := w.WaitType(eventType, ip, 100*time.Millisecond)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return event, err
		}
	}
}

// duplicate varies what pods are like: their style, their family, and whether they ever
// speak. Every number up to 245 has an address of its own.
func duplicate(n *lab.Node, number int) lab.PodOptions {
	last := byte(10 + number)
	o := lab.PodOptions{Style: lab.Bridged, Silent: number%3 == 2}
	ip := n.IPv4(last)
	switch number % 4 {
	case 1:
		ip = n.IPv6(last)
	case 2:
		o.Style, ip = lab.Routed, n.RoutedIPv4(last)
	case 3:
		o.Style, ip = lab.Routed, n.RoutedIPv6(last)
	}
	o.Addrs = []netip.Addr{ip}
	return o
}
