package scale

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// step is something to do some time after the beginning.
type step struct {
	after time.Duration
	do    func()
}

// play does one step after the other, each at its time.
func play(steps []step) {
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.after - b.after) })
	began := time.Now()
	for _, s := range steps {
		time.Sleep(s.after - time.Since(began))
		s.do()
	}
}

// sometime is a random moment within a span.
func (tw *simulation) sometime(span time.Duration) time.Duration {
	return time.Duration(tw.random.Int64N(int64(span)))
}

// netns returns the cookie of a netns that there was not before.
func (tw *simulation) netns() uint64 {
	tw.lastNetns++
	return tw.lastNetns
}

// rest does nothing for as long as it takes to refresh each lease about twice, to see what
// that costs.
func (tw *simulation) rest(r *report) {
	r.begin("at rest")
	time.Sleep(4 * time.Minute)
	r.rate()
	r.end()
}

// pair picks an address of one node for another that suits.
func (tw *simulation) pair(pods int, suits func(a, b int) bool) (key detector.Key, b int) {
	for {
		a, b := tw.random.IntN(len(tw.agents)), tw.random.IntN(len(tw.agents))
		key := keyOf(a, tw.random.IntN(pods))
		if a != b && (suits == nil || suits(a, b)) && !tw.watch.knows(key) {
			return key, b
		}
	}
}

// duplicates gives so many addresses a second holder on another node.
func (tw *simulation) duplicates(n, pods int, within time.Duration, suits func(a, b int) bool) (list []*duplicate, end func()) {
	var steps []step
	var ends []func()
	for range n {
		steps = append(steps, step{tw.sometime(within), func() {
			key, b := tw.pair(pods, suits)
			list = append(list, tw.watch.expect(key, 2))
			tw.start(b, key, tw.netns())
			ends = append(ends, func() { tw.end(b, key) })
		}})
	}
	play(steps)
	return list, func() {
		for _, f := range ends {
			f()
		}
	}
}

// steady makes duplicates in a cluster where nothing else happens.
func (tw *simulation) steady(n, pods int, r *report) {
	r.begin(fmt.Sprintf("%d duplicates across nodes", n))
	list, end := tw.duplicates(n, pods, time.Minute, nil)
	tw.await(list, 20*time.Second)
	r.foundIn(list, steady)
	r.sent()
	end()
	time.Sleep(20 * time.Second)
	r.end()
}

// await waits until all duplicates are confirmed at all of their nodes.
func (tw *simulation) await(list []*duplicate, within time.Duration) {
	for deadline := time.Now().Add(within); tw.watch.found(list) < len(list) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
}

// prefix has two nodes with one range of addresses, so many in each pod.
func (tw *simulation) prefix(addresses, perPod int, r *report) {
	r.begin(fmt.Sprintf("two nodes share %d addresses, %d in each pod", addresses, perPod))
	a, b := 1, len(tw.agents)/2
	key := func(p int) detector.Key {
		return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, byte(64 + addresses/500), byte(p >> 8), byte(p)})}
	}
	pod := func(p int) uint64 {
		if p%perPod == 0 {
			return tw.netns()
		}
		return tw.lastNetns
	}
	for p := range addresses {
		tw.start(a, key(p), pod(p))
	}
	time.Sleep(15 * time.Second)
	r.reset() // what it costs begins with the second holder
	tw.agents[a].count.reset()
	tw.agents[b].count.reset()
	var list []*duplicate
	for p := range addresses {
		list = append(list, tw.watch.expect(key(p), 2))
		tw.start(b, key(p), pod(p))
	}
	tw.await(list, time.Minute)
	r.foundIn(list, goalOf(addresses, perPod))
	r.probesOf(list, a, b)
	time.Sleep(time.Minute)
	r.sentBy(a, b)
	for p := range addresses {
		tw.end(b, key(p))
	}
	time.Sleep(20 * time.Second)
	for p := range addresses {
		tw.end(a, key(p))
	}
	time.Sleep(20 * time.Second)
	r.end()
}

// everywhere has all nodes with one range of addresses.
func (tw *simulation) everywhere(addresses int, r *report) {
	r.begin(fmt.Sprintf("all nodes share %d addresses", addresses))
	key := func(p int) detector.Key {
		return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 63, byte(p >> 8), byte(p)})}
	}
	var list []*duplicate
	for p := range addresses {
		list = append(list, tw.watch.expect(key(p), len(tw.agents)))
	}
	var steps []step
	for i := range tw.agents {
		steps = append(steps, step{tw.sometime(30 * time.Second), func() {
			for p := range addresses {
				tw.start(i, key(p), tw.netns())
			}
		}})
	}
	play(steps)
	tw.await(list, time.Minute)
	r.knownTo(list)
	r.sent()
	for i := range tw.agents {
		for p := range addresses {
			tw.end(i, key(p))
		}
	}
	time.Sleep(time.Minute)
	r.end()
}

// rolling restarts a share of all agents, a few at a time, while duplicates appear.
func (tw *simulation) rolling(n, pods int, r *report) {
	const lasts = time.Minute
	restarts := max(1, len(tw.agents)/10)
	r.begin(fmt.Sprintf("%d agents restart while %d duplicates appear", restarts, n))
	var work sync.WaitGroup
	work.Go(func() { tw.restartAll(tw.random.Perm(len(tw.agents))[:restarts], lasts) })
	list, end := tw.duplicates(n, pods, lasts, nil)
	work.Wait()
	tw.await(list, time.Minute)
	r.foundIn(list, goal{})
	r.sent()
	end()
	time.Sleep(20 * time.Second)
	r.end()
}

// rollout restarts all agents, one after the other, while duplicates last.
func (tw *simulation) rollout(n, pods int, r *report) {
	lasts := min(5*time.Minute, time.Duration(len(tw.agents))*2*time.Second)
	r.begin(fmt.Sprintf("all agents restart within %s while %d conflicts last", lasts, n))
	list, end := tw.duplicates(n, pods, time.Second, nil)
	tw.await(list, 20*time.Second)
	r.foundIn(list, goal{})
	tw.restartAll(tw.random.Perm(len(tw.agents)), lasts)
	time.Sleep(20 * time.Second)
	r.lasted(list)
	r.sent()
	end()
	time.Sleep(20 * time.Second)
	r.end()
}

// restartAll restarts agents one after the other within some time.
func (tw *simulation) restartAll(nodes []int, within time.Duration) {
	var work sync.WaitGroup
	for at, i := range nodes {
		work.Go(func() {
			time.Sleep(time.Duration(at) * within / time.Duration(len(nodes)))
			tw.restart(i)
		})
	}
	work.Wait()
}

// suspended suspends machines until their keepers have forgotten their leases. Then other nodes take over
// some of their addresses, and the machines resume. Unlike after a real suspension their clocks have gone on, so
// their leases are due in any case.
func (tw *simulation) suspended(pods int, r *report) {
	const lasts, before, each = 6 * time.Minute, 30 * time.Second, 10
	nodes := tw.random.Perm(len(tw.agents))[:min(10, len(tw.agents)/10)]
	r.begin(fmt.Sprintf("%d machines are suspended for %s", len(nodes), lasts))
	var resume []func()
	for _, i := range nodes {
		// There is something to send, so that its agent is in the middle of it.
		tw.start(i, keyOf(i, pods), tw.netns())
		resume = append(resume, tw.agents[i].suspend())
		if tw.members != nil {
			tw.members.suspended(tw.agents[i].member)
		}
	}
	time.Sleep(lasts - before)
	var list []*duplicate
	var ends []func()
	for _, i := range nodes {
		for p := range each {
			b := tw.random.IntN(len(tw.agents))
			for slices.Contains(nodes, b) {
				b = tw.random.IntN(len(tw.agents))
			}
			list = append(list, tw.watch.expect(keyOf(i, p), 2))
			tw.start(b, keyOf(i, p), tw.netns())
			ends = append(ends, func() { tw.end(b, keyOf(i, p)) })
		}
	}
	time.Sleep(before)
	for _, f := range resume {
		f()
	}
	tw.watch.restart(list)
	tw.await(list, 2*time.Minute)
	r.foundIn(list, goal{suspected: 3 * time.Second})
	for _, f := range ends {
		f()
	}
	for _, i := range nodes {
		tw.end(i, keyOf(i, pods))
	}
	time.Sleep(20 * time.Second)
	r.end()
}

// silent has one node request documents from all others, while a rack of them does not answer.
func (tw *simulation) silent(r *report) {
	rack := min(128, len(tw.agents)*128/300)
	r.begin(fmt.Sprintf("a query while %d of %d members are silent", rack, len(tw.agents)))
	tw.network.Partition(func(at netip.AddrPort) int {
		b := at.Addr().As4()
		if int(b[2])<<8+int(b[3]) < rack {
			return 1
		}
		return 0
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	began := time.Now()
	var mu sync.Mutex
	var took []time.Duration
	missing, err := tw.agents[len(tw.agents)-1].gossip.Query(ctx, cluster.Query{Kind: cluster.QueryConflicts}, func(cluster.Member, []byte) error {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
		return nil
	})
	tw.network.Partition(nil)
	want := len(tw.agents) - rack - 1
	r.row("answered within 5s", "%d of %d, %s; %d are missing", len(took), want, spread(took), len(missing))
	if err != nil || len(took) != want || len(missing) != rack {
		r.simulation.t.Errorf("%d of %d members answered and %d are missing: %v", len(took), want, len(missing), err)
	}
	time.Sleep(time.Minute)
	r.end()
}

// restart stops an agent and starts its successor, which sees the pods that there are now.
func (tw *simulation) restart(i int) {
	tw.halt(i)
	time.Sleep(time.Second)
	tw.boot(i)
	tw.mu.Lock()
	pods := maps.Clone(tw.pods[i])
	a := tw.agents[i]
	tw.mu.Unlock()
	for key, netns := range pods {
		a.start(key, netns)
	}
}

// start gives an address to a new pod of a node, whose agent may be down.
func (tw *simulation) start(i int, key detector.Key, netns uint64) {
	tw.mu.Lock()
	if tw.pods[i] == nil {
		tw.pods[i] = make(map[detector.Key]uint64)
	}
	tw.pods[i][key] = netns
	a := tw.agents[i]
	tw.mu.Unlock()
	a.start(key, netns)
}

// end ends the pod of a node that has an address.
func (tw *simulation) end(i int, key detector.Key) {
	tw.mu.Lock()
	delete(tw.pods[i], key)
	a := tw.agents[i]
	tw.mu.Unlock()
	a.end(key)
}

// cut cuts the cluster in two halves and makes duplicates across the cut.
func (tw *simulation) cut(n, pods int, r *report) {
	const lasts = 90 * time.Second
	r.begin(fmt.Sprintf("%d duplicates across a cut of %s", n, lasts))
	side := func(a netip.AddrPort) int { return int(a.Addr().As4()[3]) % 2 }
	var work sync.WaitGroup
	work.Go(func() {
		if tw.members != nil {
			tw.members.partition(side, lasts)
			return
		}
		tw.network.Partition(side)
		time.Sleep(lasts)
		tw.network.Partition(nil)
	})
	began := time.Now()
	list, end := tw.duplicates(n, pods, lasts-10*time.Second, func(a, b int) bool { return side(addrOf(a)) != side(addrOf(b)) })
	time.Sleep(lasts - time.Since(began))
	tw.watch.restart(list) // no node can know before the heal
	tw.await(list, 2*time.Minute)
	work.Wait()
	r.foundIn(list, goal{})
	r.sent()
	end()
	time.Sleep(20 * time.Second)
	r.end()
}
