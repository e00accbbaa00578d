package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// measureUsage measures agents on nodes of several sizes at the same time: CPU time is per process,
// and idle agents do not disturb each other.
func measureUsage(b *bench) {
	b.title("AN AGENT: MEMORY, CPU OF A CORE (pods of two addresses, %s silent, %s a packet a second each)", b.idle, b.talk)
	var pods [][]*lab.Pod
	var agents []*lab.Agent
	var groups []string
	for _, size := range b.pods {
		n := b.Node("")
		groups = append(groups, b.memoryCgroup(n))
		pods = append(pods, b.populate(n, size))
		agents = append(agents, b.Agent(n, "--log-level", "info"))
	}
	for i, a := range agents {
		b.eventually(func() error {
			if got := announced(b.status(a)); got < 2*len(pods[i]) {
				return fmt.Errorf("the agent has %d of %d addresses", got, 2*len(pods[i]))
			}
			return nil
		})
	}
	idle := b.use(agents, func() { b.pause(b.idle) })
	talking := b.use(agents, func() { b.sendEvery(pods) })
	for i := range agents {
		goal := ""
		if b.pods[i] == 250 {
			goal = "≤ 40 MB, idle ≤ 0.5%"
		}
		b.row(fmt.Sprintf("%d pods", b.pods[i]), goal, "%.1f MB, idle %.2f%%, talking %.2f%%",
			max(idle[i].memory, talking[i].memory)/1e6, 100*idle[i].cpu, 100*talking[i].cpu)
		if groups[i] != "" {
			m := b.memoryOf(groups[i])
			b.row(fmt.Sprintf("%d pods, by the cgroup", b.pods[i]), "", "anon %.1f, kernel %.1f, file %.1f, working set %.1f MB",
				m.anon/1e6, m.kernel/1e6, m.file/1e6, m.working/1e6)
		}
	}
}

// populate gives a node so many silent pods, at most 250.
func (b *bench) populate(n *lab.Node, size int) []*lab.Pod {
	b.Helper()
	pods := make([]*lab.Pod, size)
	var group errgroup.Group
	group.SetLimit(4)
	for i := range size {
		group.Go(func() (err error) {
			last := byte(2 + i)
			pods[i], err = n.AddPod(fmt.Sprintf("%s-pod%d", n.ShortName(), i), lab.PodOptions{
				Addrs: []netip.Addr{n.IPv4(last), n.IPv6(last)}, Silent: true,
			})
			return err
		})
	}
	b.Do(group.Wait())
	return pods
}

// announced is how many addresses the agent has from announcements and answers.
func announced(status map[string]any) int {
	byEvidence, _ := status["bindingsByEvidence"].(map[string]any)
	count, _ := byEvidence["announced"].(float64)
	return int(count)
}

// usage is what an agent used: the share of a core, and bytes at the end.
type usage struct{ cpu, memory float64 }

// use measures all agents while f runs.
func (b *bench) use(agents []*lab.Agent, f func()) []usage {
	b.Helper()
	all := make([]usage, len(agents))
	began := time.Now()
	for i, a := range agents {
		all[i].cpu = -b.cpuTime(a).Seconds()
	}
	f()
	took := time.Since(began).Seconds()
	for i, a := range agents {
		all[i].cpu = (all[i].cpu + b.cpuTime(a).Seconds()) / took
		all[i].memory = float64(b.Usage(a.Process).RSS)
	}
	return all
}

// sendEvery lets every pod send a datagram a second into the world, from its IPv4 address, evenly
// spread.
func (b *bench) sendEvery(nodes [][]*lab.Pod) {
	b.Helper()
	// The world ends at the switch, see package lab.
	world := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), 9)
	var conns []*net.UDPConn
	for _, pods := range nodes {
		for _, p := range pods {
			c, err := p.DialUDP(p.Addrs()[0], world)
			b.Do(err)
			defer c.Close()
			conns = append(conns, c)
		}
	}
	tick := time.NewTicker(time.Second / time.Duration(len(conns)))
	defer tick.Stop()
	for end, next := time.Now().Add(b.talk), 0; time.Now().Before(end); next = (next + 1) % len(conns) {
		<-tick.C
		if _, err := conns[next].Write([]byte("dupip bench")); err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) {
			b.Fatal(err)
		}
	}
}
