package gossip

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// churn is a cluster in which anything happens, and what there should be in the end.
type churn struct {
	*fakeNet
	t     *testing.T
	rng   *rand.Rand
	nodes []*fakeNode // nil while its agent is down
	epoch int64
	// pods have addresses whether their node's agent is there or not.
	pods  []map[detector.Key]uint64
	netns uint64
	apart bool
}

func (c *churn) up() (list []int) {
	for i, n := range c.nodes {
		if n != nil {
			list = append(list, i)
		}
	}
	return list
}

func (c *churn) step() {
	i := c.rng.IntN(len(c.nodes))
	n, key := c.nodes[i], testKey(c.rng.IntN(30))
	switch what := c.rng.IntN(100); {
	case what < 55: // a pod comes
		if c.pods[i][key] == 0 {
			c.netns++
			c.pods[i][key] = c.netns
			if n != nil {
				n.hold(key, c.netns)
			}
		}
	case what < 90: // a pod goes
		if netns := c.pods[i][key]; netns != 0 {
			delete(c.pods[i], key)
			if n != nil {
				n.Withdraw(key, n.claim(netns).Holder.ID, []string{c.nodeID(c.rng.IntN(len(c.nodes)))})
			}
		}
	case what < 94: // an agent goes
		if n != nil && len(c.up()) > 2 && !c.apart {
			if c.rng.IntN(2) == 0 {
				n.kill()
			} else {
				n.leave()
			}
			c.nodes[i] = nil
		}
	case what < 99: // an agent comes
		if n == nil && !c.apart {
			c.startAgent(i)
		}
	default:
		c.split(!c.apart)
	}
}

func (c *churn) nodeID(i int) string { return cluster.NodeID(fmt.Sprintf("node-%d", i), testBoot) }

// startAgent starts the next incarnation of an agent, which finds the pods that are there.
func (c *churn) startAgent(i int) {
	c.epoch++
	c.nodes[i] = c.start(fmt.Sprintf("node-%d", i), testBoot, c.epoch)
	n := c.nodes[i]
	n.mu.Lock()
	n.asks = true
	n.mu.Unlock()
	for key, netns := range c.pods[i] {
		n.hold(key, netns)
	}
}

// split cuts the cluster in two halves, or heals it.
func (c *churn) split(apart bool) {
	if apart == c.apart {
		return
	}
	c.apart = apart
	side := make(map[string]bool)
	for _, i := range c.up() {
		side[c.nodes[i].member.Name] = i%2 == 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = nil; apart {
		c.cut = func(from, to string) bool { return side[from] != side[to] }
	}
	for _, i := range c.up() {
		for _, j := range c.up() {
			switch {
			case i%2 == j%2:
			case apart:
				c.nodes[i].handler.Left(c.nodes[j].member, false)
			default:
				c.nodes[i].handler.Joined(c.nodes[j].member)
			}
		}
	}
}

// Whatever happened: when all has settled, each lease is acknowledged by its keepers, and
// each two holders that are there have been told of each other. While it settles nothing is
// lost any more. What was lost before is told again when the leases are refreshed: most pairs
// know of each other soon, all of them after that.
func TestChurn(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &churn{fakeNet: newFakeNet(t), t: t, rng: rand.New(rand.NewPCG(seed, 1)), nodes: make([]*fakeNode, 10)}
				c.delay = 200 * time.Millisecond
				for i := range c.nodes {
					c.pods = append(c.pods, make(map[detector.Key]uint64))
					c.startAgent(i)
				}
				for range 3 {
					c.loses(0.05)
					for range 400 {
						c.step()
						time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond)
					}
					c.split(false)
					c.loses(0)
					time.Sleep(40 * time.Second)
					c.check(7)                  // what one holder of eight may have missed
					time.Sleep(2 * time.Minute) // 150 s are the longest until a refresh
					c.check(0)
				}
			})
		})
	}
}

// check looks at what there should be. So many may not have been told of another yet.
func (c *churn) check(missing int) {
	c.t.Helper()
	synctest.Wait()
	holders := make(map[detector.Key][]detector.HolderID)
	at := make(map[detector.HolderID]*fakeNode)
	pairs := 0
	var untold []string
	for _, i := range c.up() {
		n := c.nodes[i]
		if s := n.Status(); s.Unacked != 0 || s.Leases != len(c.pods[i]) {
			c.t.Errorf("%s has %d leases of %d, %d of them not acknowledged", n.member.Name, s.Leases, len(c.pods[i]), s.Unacked)
		}
		for key, netns := range c.pods[i] {
			id := n.claim(netns).Holder.ID
			holders[key] = append(holders[key], id)
			at[id] = n
		}
	}
	for key, ids := range holders {
		for _, id := range ids {
			told := toldOf(at[id], key)
			for _, other := range ids {
				if other == id {
					continue
				}
				if pairs++; !told[other] && len(ids) <= 8 {
					untold = append(untold, fmt.Sprintf("%s: %v was not told of %v", key.IP, id, other))
				}
			}
		}
	}
	if len(untold) > missing {
		c.t.Errorf("of %d pairs:\n%s", pairs, strings.Join(untold, "\n"))
	}
	if pairs < 20 {
		c.t.Errorf("only %d pairs of rivals", pairs)
	}
}

// toldOf returns which holders of a key an agent was ever told of, by keepers or by those who
// asked it.
func toldOf(n *fakeNode, key detector.Key) map[detector.HolderID]bool {
	holders := make(map[detector.HolderID]bool)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.told {
		var about detector.Key
		var claims []cluster.Binding
		switch m := t.message.(type) {
		case cluster.ConflictNotice:
			about, claims = m.Key, m.Bindings
		case cluster.ProbeRequest:
			about, claims = m.Key, m.Bindings
		}
		for _, claim := range claims {
			if about == key {
				holders[claim.Holder.ID] = true
			}
		}
	}
	return holders
}
