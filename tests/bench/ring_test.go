package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

func measureRing(b *bench) {
	b.title("RECORDS")
	n := b.Node("")
	b.readRing(n)
	b.throughAgent(n)
}

// readRing measures the way of a record from the ring to a Record.
func (b *bench) readRing(n *lab.Node) {
	const batch = 10_000
	// The default ring holds 18,000. Every record needs a token.
	observer, program := b.observe(n, "ring", bpf.Options{Mode: bpf.TC, Constants: map[string]uint64{"answer_token_ns": 1e3, "answer_full_ns": 1e9}})
	reply := lab.Ethernet(nodeMAC, podMAC, 0, unix.ETH_P_ARP,
		lab.ARP(lab.ARPReply, podMAC, netip.MustParseAddr("10.0.0.1"), nodeMAC, netip.MustParseAddr("10.0.0.9")))
	var each []float64
	var allocations uint64
	for range b.batches {
		_, err := program.Run(&ebpf.RunOptions{Data: reply, Repeat: batch})
		b.Do(err)
		// Read waits for ever for a record that was not written.
		if lost, err := observer.Counters(loopback); err != nil || lost != (bpf.Counters{}) {
			b.Fatal(errors.Join(fmt.Errorf("records were not written: %+v", lost), err))
		}
		var before, after runtime.MemStats
		var record bpf.Record
		runtime.ReadMemStats(&before)
		began := time.Now()
		for range batch {
			b.Do(observer.Read(&record))
		}
		each = append(each, float64(time.Since(began).Nanoseconds())/batch)
		runtime.ReadMemStats(&after)
		allocations += after.Mallocs - before.Mallocs
	}
	ns := median(each)
	b.row("from the ring, bpf.Observer.Read", "", "%.0f ns each, %.1f million a second", ns, 1e3/ns)
	b.row("allocations of each", "0", "%.2f", float64(allocations)/float64(batch*b.batches))
}

const (
	// burst is how many answers an interface may give at once, perSecond how many in the
	// long run: the defaults of bpf/include/config.h.
	burst, perSecond = 400, 200
)

// throughAgent lets many pods announce themselves as fast as they can, and measures what a
// record costs an agent from the ring to its tables.
func (b *bench) throughAgent(n *lab.Node) {
	var pods []*lab.Pod
	for i := range b.announcing + 1 {
		pods = append(pods, b.Pod(n, fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(byte(2 + i))}}))
	}
	a := b.Agent(n, "--log-level", "info")
	b.attached(a, pods...)
	var each []float64
	var taken int
	for range b.bursts {
		// Buckets are full again after this long.
		b.pause(burst*time.Second/perSecond + 100*time.Millisecond)
		lostBefore := b.lost(a)
		cpu := b.during(a, func() { b.flood(a, pods) })
		records := (len(pods)-1)*burst + 1 - (b.lost(a) - lostBefore)
		each, taken = append(each, cpu.Seconds()/float64(records)), taken+records
	}
	cpu := median(each)
	b.row("through an agent, CPU time", "", "%.1f µs each, %.0f a second and core", cpu*1e6, 1/cpu)
	b.row(fmt.Sprintf("%d bursts from %d pods at once", b.bursts, b.announcing), "", "%d of %d taken", taken, b.bursts*(burst*b.announcing+1))
}

// flood sends a burst of ARP replies from all pods but the first, then one reply from that: a
// bucket of its own lets it through, and it is known once all before it are dealt with.
func (b *bench) flood(a *lab.Agent, pods []*lab.Pod) {
	b.Helper()
	for _, p := range pods[1:] {
		b.Do(p.SendRaw(slices.Repeat([][]byte{b.arpReply(p)}, burst)...))
	}
	marked := time.Now()
	b.Do(pods[0].SendRaw(b.arpReply(pods[0])))
	_, err := a.Client.WaitBinding(b.within(), pods[0].Addrs()[0], func(b lab.Binding) bool { return !b.LastSeen.Before(marked) })
	b.Do(err)
}

// arpReply is an unsolicited ARP reply with which a pod announces itself.
func (b *bench) arpReply(p *lab.Pod) []byte {
	b.Helper()
	own, err := p.MAC(p.Interface)
	b.Do(err)
	bridge, err := p.Node.MAC(lab.Bridge)
	b.Do(err)
	return lab.Ethernet(bridge, own, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPReply, own, p.Addrs()[0], bridge, p.Node.IPv4(1)))
}

// lost counts the packets that made no record because a bucket was empty or the ring full,
// and the records that the agent dropped.
func (b *bench) lost(a *lab.Agent) (sum int) {
	b.Helper()
	dropped, _ := b.status(a)["dropped"].(map[string]any)
	for _, n := range dropped {
		n, _ := n.(float64)
		sum += int(n)
	}
	return sum
}

func (b *bench) status(a *lab.Agent) map[string]any {
	b.Helper()
	status, err := a.Client.Status(b.Context())
	b.Do(err)
	return status
}

// pause lets time go by that is part of what is measured.
func (b *bench) pause(d time.Duration) {
	b.Helper()
	select {
	case <-b.Context().Done():
		b.Fatal(b.Context().Err())
	case <-time.After(d):
	}
}
