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
	"github.com/dupip/dupip/internal/testneeds"
)

// A keeper that dies is replaced, and the next one informed: a duplicate that starts afterwards is found, though no
// former keeper is left.
func TestKeepersDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(12)
		a, b := nodes[0], nodes[1]
		time.Sleep(10 * time.Second)
		a.hold(testKey(1), 1)
		time.Sleep(time.Second)
		killed := 0
		for _, n := range nodes[2:] {
			if n.Status().Kept > 0 {
				n.kill()
				killed++
			}
		}
		if killed == 0 {
			t.Fatal("nobody keeps the lease")
		}
		time.Sleep(6 * time.Second)
		b.hold(testKey(1), 2)
		eventually(t, time.Second, "notices", func() bool { return a.knows(testKey(1), "node-1")() && b.knows(testKey(1), "node-0")() })
	})
}

// Both got their leases kept on their own side of a cut. When it heals, they are found.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(8)
		side := func(name string) bool { return strings.TrimPrefix(name, "node-") < "4" }
		time.Sleep(10 * time.Second)
		cut := func(apart bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.cut = func(from, to string) bool { return apart && side(from) != side(to) }
			for _, n := range f.nodes {
				for _, m := range nodes {
					if side(n.member.Name) == side(m.member.Name) {
						continue
					}
					if apart {
						n.handler.Left(m.member, false)
					} else {
						n.handler.Joined(m.member)
					}
				}
			}
		}
		cut(true)
		for i := range 20 {
			nodes[0].hold(testKey(i), 1)
			nodes[7].hold(testKey(i), 2)
		}
		time.Sleep(90 * time.Second)
		if m, _ := messages[cluster.ConflictNotice](nodes[0]); len(m) > 0 {
			t.Errorf("notified across the cut: %v", m)
		}
		cut(false)
		eventually(t, 6*time.Second, "notices after the heal", func() bool {
			for i := range 20 {
				if !nodes[0].knows(testKey(i), "node-7")() || !nodes[7].knows(testKey(i), "node-0")() {
					return false
				}
			}
			return true
		})
	})
}

// All agents are upgraded, one after the other. The leases move to the new ones, nobody is notified of holders who are
// none, and a duplicate afterwards is found.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(6)
		for i, n := range nodes {
			n.hold(testKey(i), uint64(i+1))
		}
		time.Sleep(10 * time.Second)
		for i, n := range nodes {
			n.leave()
			time.Sleep(2 * time.Second)
			nodes[i] = f.start(n.member.Name, testBoot, 2)
			nodes[i].hold(testKey(i), uint64(i+1))
			time.Sleep(2 * time.Second)
		}
		time.Sleep(20 * time.Second)
		for _, n := range nodes {
			if m, _ := messages[cluster.ConflictNotice](n); len(m) > 0 || n.unacked() > 0 {
				t.Errorf("%s: notices %v, %d not acknowledged, %v", n.member.Name, m, n.unacked(), n.Status().Dropped)
			}
		}
		nodes[5].hold(testKey(0), 99)
		eventually(t, time.Second, "notices", func() bool {
			return nodes[0].knows(testKey(0), "node-5")() && nodes[5].knows(testKey(0), "node-0")()
		})
		// The bindings are in the name of the nodes, whichever agent leased them.
		m, _ := messages[cluster.ConflictNotice](nodes[5])
		if got := m[0].Bindings[0].Holder.ID.Node; got != nodes[0].member.NodeID() {
			t.Errorf("the holder is on %s", got)
		}
	})
}

// A keeper's agent is killed and is back before anybody missed it, knowing nothing.
func TestQuickRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3) // everybody keeps everything
		nodes[0].hold(testKey(1), 1)
		time.Sleep(10 * time.Second)
		for i, n := range nodes[1:] {
			f.set(func() { n.there = false })
			nodes[1+i] = f.start(n.member.Name, testBoot, 2)
		}
		time.Sleep(6 * time.Second)
		for _, n := range nodes[1:] {
			if kept := n.Status().Kept; kept != 1 {
				t.Errorf("%s keeps %d leases", n.member.Name, kept)
			}
		}
	})
}

// A node that reboots has the same pods with the same addresses again.
func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(5)
		nodes[1].hold(testKey(1), 1)
		time.Sleep(10 * time.Second)
		nodes[1].kill()
		again := f.start("node-1", "another", 1)
		again.hold(testKey(1), 1)
		time.Sleep(10 * time.Minute)
		for _, n := range append(nodes, again) {
			if m, _ := messages[cluster.ConflictNotice](n); len(m) > 0 {
				t.Errorf("%s is notified of %v", n.member.Name, m)
			}
		}
	})
}

// An address goes from node to node and back, with packets overtaking each other. In the end, one has it.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.delay, f.loss = 400*time.Millisecond, 0.05
		nodes := f.startMany(6)
		time.Sleep(10 * time.Second)
		for round := range 20 {
			n := nodes[round%2]
			b := n.hold(testKey(1), uint64(round+1))
			time.Sleep(time.Duration(20+round*20) * time.Millisecond)
			n.Withdraw(testKey(1), b.Holder.ID, nil)
		}
		nodes[2].hold(testKey(1), 5)
		time.Sleep(20 * time.Second)
		// All that is late has come; nothing but the last lease is kept anywhere.
		kept := 0
		for _, n := range nodes {
			n.forgetMessages()
			kept += n.Status().Kept
		}
		if kept != 3 {
			t.Errorf("kept at %d places, want 3", kept)
		}
		time.Sleep(10 * time.Minute)
		for _, n := range nodes {
			if m, _ := messages[cluster.ConflictNotice](n); len(m) > 0 {
				t.Errorf("%s is notified of %v", n.member.Name, m)
			}
		}
	})
}

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
				n.Withdraw(key, n.binding(netns).Holder.ID, []string{c.nodeID(c.rng.IntN(len(c.nodes)))})
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
	n.requests = true
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
	c.cut = func(from, to string) bool { return apart && side[from] != side[to] }
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

// Whatever happened: when all has settled, each lease is acknowledged by its keepers, and of each two holders that are
// there each node knows the other one.
func TestChurn(t *testing.T) {
	seeds := uint64(3)
	if testneeds.Raced {
		seeds = 1 // with the race detector, each takes ten times as long
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &churn{fakeNet: newFakeNet(t), t: t, rng: rand.New(rand.NewPCG(seed, 1)), nodes: make([]*fakeNode, 10)}
				c.delay = 200 * time.Millisecond
				for i := range c.nodes {
					c.pods = append(c.pods, make(map[detector.Key]uint64))
					c.startAgent(i)
				}
				for range 2 {
					c.set(func() { c.loss = 0.05 })
					for range 400 {
						c.step()
						time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond)
					}
					c.split(false)
					c.set(func() { c.loss = 0 })
					time.Sleep(40 * time.Second)
					c.check()
				}
			})
		})
	}
}

// check looks at what there should be.
func (c *churn) check() {
	c.t.Helper()
	synctest.Wait()
	holders := make(map[detector.Key][]detector.HolderID)
	at := make(map[detector.HolderID]*fakeNode)
	pairs := 0
	var missing []string
	for _, i := range c.up() {
		n := c.nodes[i]
		if s := n.Status(); s.Unacked != 0 || s.Leases != len(c.pods[i]) {
			c.t.Errorf("%s has %d leases of %d, %d of them not acknowledged", n.member.Name, s.Leases, len(c.pods[i]), s.Unacked)
		}
		for key, netns := range c.pods[i] {
			id := n.binding(netns).Holder.ID
			holders[key] = append(holders[key], id)
			at[id] = n
		}
	}
	for key, ids := range holders {
		for _, id := range ids {
			known := knownTo(at[id], key)
			for _, other := range ids {
				if other == id {
					continue
				}
				if pairs++; !known[other] && len(ids) <= 8 {
					missing = append(missing, fmt.Sprintf("%s: %v does not know %v", key.IP, id, other))
				}
			}
		}
	}
	if len(missing) > 0 {
		c.t.Errorf("of %d pairs:\n%s", pairs, strings.Join(missing, "\n"))
	}
	if pairs < 20 {
		c.t.Errorf("only %d pairs of holders", pairs)
	}
}

// knownTo returns which holders of a key an agent was ever notified of, by keepers or by those who sent requests.
func knownTo(n *fakeNode, key detector.Key) map[detector.HolderID]bool {
	holders := make(map[detector.HolderID]bool)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.received {
		var about detector.Key
		var bindings []cluster.Binding
		switch m := r.message.(type) {
		case cluster.ConflictNotice:
			about, bindings = m.Key, m.Bindings
		case cluster.ProbeRequest:
			about, bindings = m.Key, m.Bindings
		}
		for _, b := range bindings {
			if about == key {
				holders[b.Holder.ID] = true
			}
		}
	}
	return holders
}
