package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// measureDelay makes duplicates on one node, some at a time, and measures how long it takes
// from the moment the newcomer's interface comes up, before which it can have sent nothing,
// until the agent suspects and until it confirms. The agent's attaching is part of it.
func measureDelay(ctx context.Context, s settings) ([]block, error) {
	var suspected, confirmed []time.Duration
	err := inLab(ctx, func(l *lab.Lab) error {
		n, err := l.AddNode("")
		if err != nil {
			return err
		}
		a, err := n.StartAgent("--log-level", "info")
		if err != nil {
			return err
		}
		ready, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := a.WaitReady(ready); err != nil {
			return err
		}
		w, err := a.Watch(ctx)
		if err != nil {
			return err
		}
		for wave := range s.waves {
			found, err := duplicateWave(ctx, n, a, w, wave*s.wave, s.wave)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, lastWords(a))
			}
			for _, f := range found {
				suspected, confirmed = append(suspected, f.suspected), append(confirmed, f.confirmed)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b := block{title: fmt.Sprintf("A DUPLICATE ON ONE NODE, from its interface coming up (%d duplicates, %d at a time)", len(suspected), s.wave)}
	for _, r := range []struct {
		what string
		all  []time.Duration
		goal string
	}{{"suspected", suspected, "p99 ≤ 250 ms"}, {"confirmed, --min-overlap 1s", confirmed, "p99 ≤ 1.5 s"}} {
		b.rows = append(b.rows, row{r.what, fmt.Sprintf("%.3f s, p99 %.3f s", median(r.all).Seconds(), percentile(r.all, 99).Seconds()), r.goal})
	}
	return []block{b}, nil
}

// finding is how long one duplicate took.
type finding struct{ suspected, confirmed time.Duration }

// duplicateWave makes some duplicates at once, waits until they are confirmed, and removes
// them.
func duplicateWave(ctx context.Context, n *lab.Node, a *lab.Agent, w *lab.Watch, first, count int) ([]finding, error) {
	var elders, newcomers []*lab.Pod
	for number := first; number < first+count; number++ {
		p, err := n.AddPod(fmt.Sprintf("elder%d", number), duplicate(n, number))
		if err != nil {
			return nil, err
		}
		elders = append(elders, p)
	}
	known, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, elder := range elders {
		if _, err := a.Client.WaitBinding(known, elder.Addrs()[0], func(lab.Binding) bool { return true }); err != nil {
			return nil, err
		}
		p, err := n.AddPod(fmt.Sprintf("newcomer%d", first+i), duplicate(n, first+i))
		if err != nil {
			return nil, err
		}
		newcomers = append(newcomers, p)
	}
	var found []finding
	for _, p := range newcomers {
		suspected, err := waitEvent(ctx, w, "suspected", p.Addrs()[0])
		if err != nil {
			return nil, err
		}
		confirmed, err := waitEvent(ctx, w, "confirmed", p.Addrs()[0])
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
