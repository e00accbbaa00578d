package scale

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/gossip/members"
)

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
