package scale

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
)

// The limits of agent/probe and agent/config: what a pod and a node are probed a second at most, and how many bindings an interface may
// have here.
const (
	podProbes, nodeProbes = 180, 1000
	maxPerInterface       = 1 << 14
)

// massGoal is how long two nodes may take to confirm so many addresses in so many pairs of pods: each is probed twice. Most of what the limits
// allow is theirs.
func massGoal(addresses, pods int) time.Duration {
	byPod, byNode := 2*addresses/pods*int(time.Second)/podProbes, 2*addresses*int(time.Second)/nodeProbes
	return max(1400*time.Millisecond, time.Duration(max(byPod, byNode))*5/4)
}

// maxMass is what a node may send to confirm up to 10,000 addresses, in bytes.
const maxMass = 5_000_000

// innocents are duplicates that have nothing to do with what else happens: on other nodes, on one of the two and another, and in pods of their own
// on both, which wait for as many pairs of pods as there are.
var innocents = [...]goal{{confirmed: 1500 * time.Millisecond}, {confirmed: 2 * time.Second}, {}}

// mass has two nodes with one range of addresses, all of them at once, in so many pods of each. Meanwhile other addresses get a second
// holder: elsewhere, at one of the two nodes, and in other pods of both.
func (tw *simulation) mass(addresses, pods int, r *report) {
	r.begin(fmt.Sprintf("two nodes share %d addresses at once, in %d pairs of pods", addresses, pods))
	a, b := 1, len(tw.agents)/2
	key := func(p int) detector.Key {
		return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, byte(40 + addresses/1000 + pods%17), byte(p >> 8), byte(p)})}
	}
	first := tw.lastNetns + 1
	tw.lastNetns += 2 * uint64(pods)
	for p := range addresses {
		tw.start(a, key(p), first+uint64(p%pods))
	}
	time.Sleep(20 * time.Second)
	r.reset() // what it costs begins with the second holder
	tw.agents[a].count.reset()
	tw.agents[b].count.reset()
	began := time.Now()
	var list []*duplicate
	for p := range addresses {
		list = append(list, tw.watch.expect(key(p), 2))
		tw.start(b, key(p), first+uint64(pods+p%pods))
	}
	others, end := tw.innocents(a, b, r, list, began, massGoal(addresses, pods))
	r.foundIn(list, goal{confirmed: massGoal(addresses, pods)})
	for i, what := range []string{"elsewhere", "at one of the two", "in other pods of the two"} {
		r.row("meanwhile, "+what, "%d duplicates", len(others[i]))
		tw.await(others[i], 2*massGoal(addresses, pods))
		r.foundIn(others[i], innocents[i])
	}
	end()
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

// innocents makes a duplicate of each kind every 700 ms, as long as those of a list should take, and reports how that one gets on.
func (tw *simulation) innocents(a, b int, r *report, list []*duplicate, began time.Time, want time.Duration) (others [3][]*duplicate, end func()) {
	var ends []func()
	n := 0
	pair := func(kind, x, y int) {
		n++
		key := detector.Key{Network: "default"}
		key.IP = netip.AddrFrom4([4]byte{10, 39, byte(len(tw.watch.duplicates) >> 8), byte(len(tw.watch.duplicates))})
		tw.start(x, key, tw.netns())
		time.Sleep(time.Second / 4)
		others[kind] = append(others[kind], tw.watch.expect(key, 2))
		tw.start(y, key, tw.netns())
		ends = append(ends, func() { tw.end(x, key); tw.end(y, key) })
	}
	reportAt := []time.Duration{10 * time.Second, 25 * time.Second, time.Minute}
	done := false
	for len(reportAt) > 0 || !done && time.Since(began) < 2*want+time.Minute {
		if !done && time.Since(began) < want {
			c := (b + 1 + n) % len(tw.agents)
			for c == a || c == b || (c+1)%len(tw.agents) == a || (c+1)%len(tw.agents) == b {
				c = (c + 1) % len(tw.agents)
			}
			pair(0, c, (c+1)%len(tw.agents))
			pair(1, a, c)
			pair(2, b, a)
		} else {
			time.Sleep(time.Second / 4)
		}
		found := tw.watch.found(list)
		if found == len(list) && !done {
			done = true
			// The second node has to lease all of its addresses besides.
			if sent := r.since()[a].Bytes; sent > maxMass && want < time.Minute {
				r.simulation.t.Errorf("the first node has sent %s, want %s at most", amount(sent), amount(maxMass))
			}
			r.row("all are confirmed", "after %s", time.Since(began).Round(100*time.Millisecond))
			r.probesOf(list, a, b)
			r.sentBy(a, b)
		}
		if len(reportAt) > 0 && time.Since(began) >= reportAt[0] {
			r.row(fmt.Sprintf("within %s", reportAt[0]), "%d of %d are confirmed", found, len(list))
			if reportAt = reportAt[1:]; len(reportAt) == 0 {
				r.probesOf(list, a, b)
				r.sentBy(a, b)
			}
		}
	}
	return others, func() {
		for _, f := range ends {
			f()
		}
	}
}
