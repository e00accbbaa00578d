package bench

import (
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
func measureDelay(b *bench) {
	b.delays(b.Agent(b.Node(""), "--log-level", "info"), nil, "A DUPLICATE ON ONE NODE", "p99 ≤ 250 ms", "p99 ≤ 1.5 s")
	b = &bench{lab.NewT(b.TB), b.settings} // the cluster of another lab
	agents := b.Cluster(clusterNodes, "--log-level", "info")
	b.delays(agents[0], agents[1:], fmt.Sprintf("A DUPLICATE ON TWO OF %d NODES", clusterNodes), "p99 ≤ 1 s", "p99 ≤ 2.5 s")
}

func (b *bench) delays(first *lab.Agent, others []*lab.Agent, title, toSuspect, toConfirm string) {
	b.Helper()
	agents := append([]*lab.Agent{first}, others...)
	var watches []*lab.Watch
	for _, a := range agents {
		watches = append(watches, b.Watch(a))
	}
	took := make(map[string][]time.Duration)
	for wave := range b.waves {
		b.duplicateWave(agents, watches, wave*b.wave, took)
	}
	b.title("%s, from its interface coming up (%d duplicates, %d at a time)", title, len(took["suspected"]), b.wave)
	for _, r := range []struct{ event, what, goal string }{
		{"suspected", "suspected", toSuspect},
		{"confirmed", "confirmed, --min-overlap 1s", toConfirm},
	} {
		all := took[r.event]
		b.row(r.what, r.goal, "%.3f s, p99 %.3f s", median(all).Seconds(), percentile(all, 99).Seconds())
	}
}

// duplicateWave makes some duplicates at once, waits until they are confirmed, and removes
// them. The older pod and the newcomer are on neighbouring nodes of the list.
func (b *bench) duplicateWave(agents []*lab.Agent, watches []*lab.Watch, first int, took map[string][]time.Duration) {
	b.Helper()
	var pods, newcomers []*lab.Pod
	options := func(number int) lab.PodOptions { return duplicate(agents[0].Node, number) }
	for number := first; number < first+b.wave; number++ {
		pods = append(pods, b.Pod(agents[number%len(agents)].Node, fmt.Sprintf("older%d-%d", len(agents), number), options(number)))
	}
	for i, p := range pods {
		number := first + i
		_, err := agents[number%len(agents)].Client.WaitBinding(b.within(), p.Addrs()[0], func(lab.Binding) bool { return true })
		b.Do(err)
		newcomers = append(newcomers, b.Pod(agents[(number+1)%len(agents)].Node, fmt.Sprintf("newcomer%d-%d", len(agents), number), options(number)))
	}
	for i, p := range newcomers {
		for _, event := range []string{"suspected", "confirmed"} {
			e, err := watches[(first+i+1)%len(agents)].WaitType(event, p.Addrs()[0], lab.Patience(patience))
			b.Do(err)
			took[event] = append(took[event], e.At.Sub(p.Started))
		}
	}
	for i := range pods {
		b.Do(pods[i].Delete(), newcomers[i].Delete())
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
