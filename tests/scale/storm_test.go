package scale

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/members"
)

// storm starts all agents within some time, each with this many pods, and waits until the keepers
// have all leases. A few addresses have two holders from the start.
func (tw *simulation) storm(pods int, within time.Duration, r *report) {
	r.begin(fmt.Sprintf("boot storm, on each node %d addresses of pods and %d of its own, on %d nodes %d", pods, *own, *crowded, *ownMany))
	steps := make([]step, 0, len(tw.agents))
	for i := range tw.agents {
		first := tw.lastNetns + 1
		tw.lastNetns += uint64(pods)
		after := tw.sometime(within)
		if i < *seeds && *seeds < len(tw.agents) {
			after = 0
		}
		steps = append(steps, step{after, func() {
			tw.boot(i)
			for p := range pods {
				tw.start(i, keyOf(i, p), first+uint64(p))
			}
		}})
	}
	var list []*duplicate
	var ends []func()
	shared := make(map[detector.Key]bool)
	for len(shared) < 20 {
		a, b := tw.random.IntN(len(tw.agents)), tw.random.IntN(len(tw.agents)-1)
		if b >= a {
			b++
		}
		key, netns := keyOf(a, tw.random.IntN(pods)), tw.netns()
		if shared[key] {
			continue
		}
		shared[key] = true
		steps = append(steps, step{max(steps[a].after, steps[b].after), func() {
			list = append(list, tw.watch.expect(key, 2))
			tw.start(b, key, netns)
			ends = append(ends, func() { tw.end(b, key) })
		}})
	}
	play(steps)
	met := tw.acquaint()
	sent, took := tw.settle()
	leases := len(tw.agents) * pods
	for i := range tw.agents {
		leases += tw.ownCount(i)
	}
	r.row("leases sent", "%.1f times each, the last %s after the last start",
		float64(sent)/float64(leases), took.Round(time.Second))
	r.row("members know each other", "%s", met.end())
	r.sent()
	r.atMost(stormBytes)
	r.foundIn(list, goal{})
	r.end()
	for _, end := range ends {
		end()
	}
	time.Sleep(10 * time.Second)
}

// met counts the members that a node knows: those that have answered it.
type met struct {
	members.Handler
	count *atomic.Int64
}

func (m met) Joined(other members.Member) {
	m.count.Add(1)
	m.Handler.Joined(other)
}

func (m met) Left(other members.Member, gracefully bool) {
	m.count.Add(-1)
	m.Handler.Left(other, gracefully)
}

// acquaintance is how soon the members know each other.
type acquaintance struct {
	tw    *simulation
	began time.Time
	// took is how long it took until all but one in 100 pairs knew each other, in 10,000, and all; 0 is not yet.
	took     [3]time.Duration
	stop     chan struct{}
	finished chan struct{}
}

// acquaint watches the members from now on.
func (tw *simulation) acquaint() *acquaintance {
	a := &acquaintance{tw: tw, began: time.Now(), stop: make(chan struct{}), finished: make(chan struct{})}
	go a.watch()
	return a
}

// watch looks ten times a second until all know each other.
func (a *acquaintance) watch() {
	defer close(a.finished)
	pairs := len(a.tw.agents) * (len(a.tw.agents) - 1)
	for a.took[2] == 0 {
		known := a.known()
		for i, missing := range [3]int{pairs / 100, pairs / 10_000, 0} {
			if a.took[i] == 0 && known >= pairs-missing {
				a.took[i] = time.Since(a.began)
			}
		}
		select {
		case <-a.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// known is the number of pairs of which the first knows the second.
func (a *acquaintance) known() (pairs int) {
	a.tw.mu.Lock()
	defer a.tw.mu.Unlock()
	for _, agent := range a.tw.agents {
		if agent != nil {
			pairs += int(agent.met.Load())
		}
	}
	return pairs
}

// end ends the watch and returns what came out, for people.
func (a *acquaintance) end() string {
	close(a.stop)
	<-a.finished
	text := ""
	for i, share := range [3]string{"99%", "99.99%", "all"} {
		if a.took[i] > 0 {
			text += fmt.Sprintf("%s after %s, ", share, a.took[i].Round(100*time.Millisecond))
		}
	}
	pairs := len(a.tw.agents) * (len(a.tw.agents) - 1)
	return fmt.Sprintf("%s%d of %d pairs after %s", text, a.known(), pairs, time.Since(a.began).Round(time.Second))
}

// stormBytes is how much the busiest of up to 500 nodes may send in a boot storm.
const stormBytes = 8_000_000

// atMost fails the test if one of up to 500 nodes has sent more since the phase began.
func (r *report) atMost(bytes uint64) {
	for i, t := range r.since() {
		if n := t.Bytes + t.StreamBytes; n > bytes && len(r.simulation.agents) <= 500 {
			r.simulation.t.Errorf("%s has sent %d bytes, want %d at most", nodeName(i), n, bytes)
		}
	}
}
