package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

func measureRing(ctx context.Context, s settings) ([]block, error) {
	b := block{title: "RECORDS"}
	err := inLab(ctx, func(l *lab.Lab) error {
		n, err := l.AddNode("")
		if err != nil {
			return err
		}
		rows, err := readRing(ctx, n, s.batches)
		if err != nil {
			return fmt.Errorf("read the ring: %w", err)
		}
		b.rows = append(b.rows, rows...)
		if rows, err = floodAgent(ctx, n, s); err != nil {
			return fmt.Errorf("records through an agent: %w", err)
		}
		b.rows = append(b.rows, rows...)
		return nil
	})
	return []block{b}, err
}

// readRing measures the way of a record from the ring to a Record.
func readRing(ctx context.Context, n *lab.Node, batches int) ([]row, error) {
	const batch = 10_000
	// The default ring holds 18,000. Every record needs a token.
	o, err := observe(n, "ring", bpf.Options{Mode: bpf.TC, AnswerRate: bpf.Rate{PerSecond: 1e6, Burst: 1e6}})
	if err != nil {
		return nil, err
	}
	defer o.close()
	reply := lab.Ethernet(nodeMAC, podMAC, 0, etherARP,
		lab.ARP(lab.ARPReply, podMAC, netip.MustParseAddr("10.0.0.1"), nodeMAC, netip.MustParseAddr("10.0.0.9")))
	var each []float64
	var allocations uint64
	for range batches {
		if _, err := o.program.Run(&ebpf.RunOptions{Data: reply, Repeat: batch}); err != nil {
			return nil, err
		}
		// Read waits for ever for a record that was not written.
		if lost, err := o.observer.Counters(loopback); err != nil || lost != (bpf.Counters{}) {
			return nil, errors.Join(fmt.Errorf("records were not written: %+v", lost), err)
		}
		took, made, err := readBatch(o.observer, batch)
		if err != nil {
			return nil, err
		}
		each, allocations = append(each, float64(took.Nanoseconds())/batch), allocations+made
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	ns := median(each)
	return []row{
		{"from the ring, bpf.Observer.Read", fmt.Sprintf("%s a second, %.0f ns each", perSecondOf(1e9/ns), ns), ""},
		{"allocations of each", fmt.Sprintf("%.2f", float64(allocations)/float64(batch*batches)), "0"},
	}, nil
}

// readBatch reads so many records and returns how long it took and how often it allocated.
func readBatch(o *bpf.Observer, batch int) (took time.Duration, allocations uint64, err error) {
	var before, after runtime.MemStats
	var record bpf.Record
	runtime.ReadMemStats(&before)
	began := time.Now()
	for range batch {
		if err := o.Read(&record); err != nil {
			return 0, 0, err
		}
	}
	took = time.Since(began)
	runtime.ReadMemStats(&after)
	return took, after.Mallocs - before.Mallocs, nil
}

const (
	// burst is how many answers an interface may give at once, perSecond how many in the
	// long run: the defaults of bpf.Options.AnswerRate.
	burst, perSecond = 400, 200
)

// floodAgent lets many pods announce themselves as fast as they can, and measures what a
// record costs an agent from the ring to its tables.
func floodAgent(ctx context.Context, n *lab.Node, s settings) ([]row, error) {
	var pods []*lab.Pod
	for i := range s.announcing + 1 {
		p, err := n.AddPod(fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(byte(2 + i))}})
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	a, err := n.StartAgent("--log-level", "info")
	if err != nil {
		return nil, err
	}
	defer a.Stop()
	if err := waitAttached(ctx, a, pods...); err != nil {
		return nil, err
	}
	var each, waited []float64
	var taken int
	for range s.bursts {
		// Buckets are full again after this long.
		if err := pause(ctx, burst*time.Second/perSecond+100*time.Millisecond); err != nil {
			return nil, err
		}
		f, err := flood(ctx, a, pods)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, lastWords(a))
		}
		each, waited = append(each, f.cpu.Seconds()/float64(f.records)), append(waited, f.waited.Seconds())
		taken += f.records
	}
	cpu := median(each)
	return []row{
		{"through an agent, CPU time", fmt.Sprintf("%.1f µs, %s a second and core", cpu*1e6, perSecondOf(1/cpu)), ""},
		{
			fmt.Sprintf("%d bursts from %d pods at once", s.bursts, s.announcing),
			fmt.Sprintf("%s of %s taken, last in %.0f ms", thousands(taken), thousands(s.bursts*(burst*s.announcing+1)), median(waited)*1e3), "",
		},
	}, nil
}

// flooding is what came of one burst from all pods.
type flooding struct {
	records int
	// cpu is what the agent used, waited the time from the last frame to its being known.
	cpu, waited time.Duration
}

// flood sends a burst of ARP replies from all pods but the first, then one reply from that: a
// bucket of its own lets it through, and it is known once all before it are dealt with.
func flood(ctx context.Context, a *lab.Agent, pods []*lab.Pod) (f flooding, err error) {
	var frames [][]byte
	for _, p := range pods {
		frame, err := arpReply(p)
		if err != nil {
			return f, err
		}
		frames = append(frames, frame)
	}
	lostBefore, err := lost(ctx, a)
	if err != nil {
		return f, err
	}
	cpuBefore, err := cpuTime(a.PID())
	if err != nil {
		return f, err
	}
	for i, p := range pods[1:] {
		if err := p.SendRaw(slices.Repeat([][]byte{frames[i+1]}, burst)...); err != nil {
			return f, err
		}
	}
	marked := time.Now()
	if err := pods[0].SendRaw(frames[0]); err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := a.Client.WaitBinding(ctx, pods[0].Addrs()[0], func(b lab.Binding) bool { return !b.LastSeen.Before(marked) }); err != nil {
		return f, err
	}
	f.waited = time.Since(marked)
	cpuAfter, err := cpuTime(a.PID())
	if err != nil {
		return f, err
	}
	lostAfter, err := lost(ctx, a)
	f.cpu = cpuAfter - cpuBefore
	f.records = (len(pods)-1)*burst + 1 - (lostAfter - lostBefore)
	return f, err
}

// arpReply is what a pod says when it announces itself by an answer nobody asked for.
func arpReply(p *lab.Pod) ([]byte, error) {
	own, err := p.MAC(p.Interface)
	if err != nil {
		return nil, err
	}
	bridge, err := p.Node.MAC(lab.Bridge)
	if err != nil {
		return nil, err
	}
	return lab.Ethernet(bridge, own, 0, etherARP,
		lab.ARP(lab.ARPReply, own, p.Addrs()[0], bridge, p.Node.IPv4(1))), nil
}

// lost counts the packets that made no record because a bucket was empty or the ring full,
// and the records that the agent dropped.
func lost(ctx context.Context, a *lab.Agent) (int, error) {
	status, err := a.Client.Status(ctx)
	if err != nil {
		return 0, err
	}
	dropped, _ := status["dropped"].(map[string]any)
	var sum float64
	for _, n := range dropped {
		n, _ := n.(float64)
		sum += n
	}
	return int(sum), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
