package members

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// Of many that join one node at once a few get its whole list. The others know all that were there as soon: somebody on their short list
// knows them, also if some of these have just died.
func TestManyJoinOne(t *testing.T) {
	const size, dead, more = 75, 20, 25
	inAir(t, func(t *testing.T, a *air) {
		first := open(t, a, 1)
		nodes := []*node{first}
		for i := 2; i <= size; i++ {
			nodes = append(nodes, open(t, a, i, joining(first)))
		}
		complete(t, 5*time.Minute, nodes...)
		time.Sleep(5 * time.Second) // there is no news any more
		before := first.transport.Dropped()["short_list"]
		for _, n := range nodes[size-dead:] {
			n.kill()
		}
		var late []*node
		for i := size + 1; i <= size+more; i++ {
			late = append(late, open(t, a, i, joining(first)))
		}
		within(t, "those that were there are known", time.Minute, func() bool { // memberlist exchanges lists after 90 s
			return !slices.ContainsFunc(late, func(n *node) bool {
				there := n.addresses()
				return slices.ContainsFunc(nodes[:size-dead], func(old *node) bool { return !there[old.address()] })
			})
		})
		if short := first.transport.Dropped()["short_list"] - before; short == 0 {
			t.Errorf("none of %d that joined got a short list", more)
		}
		var ending sync.WaitGroup // one after the other takes minutes
		for _, n := range slices.Concat(nodes, late) {
			ending.Go(n.stop)
		}
		ending.Wait()
	})
}

// Whoever got a short list asks three others, each time until one answers.
func TestCompleteList(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 5)
		asks, lives, asked := nodes[0], nodes[4].address(), 0
		a.lose(func(from, to netip.AddrPort, stream bool) bool {
			if stream && from == asks.address() && to == lives {
				asked++
			}
			return stream && to != lives
		})
		asks.completeList(nodes[1].address())
		if asked < askOthers { // memberlist may open a stream, too
			t.Errorf("the one that answers is asked %d times", asked)
		}
	})
}
