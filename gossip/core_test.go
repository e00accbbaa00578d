package gossip

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

func (n *fakeNode) sent(t wire.Type) uint64 { return n.Status().Sent[t.String()] }

// unacked says whether some lease is not acknowledged, without waiting until it is late.
func (n *fakeNode) unacked() int {
	n.state.Lock()
	defer n.state.Unlock()
	count, _ := n.leases.Unacked(time.Now().Add(time.Minute))
	return count
}

// rivalsOf returns which holders a node was told of for a key.
func (n *fakeNode) rivalsOf(key detector.Key) (list []string) {
	rivals, _ := messages[cluster.ConflictNotice](n)
	for _, r := range rivals {
		for _, c := range r.Bindings {
			if r.Key == key {
				list = append(list, cluster.NodeName(c.Holder.ID.Node))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (n *fakeNode) knows(key detector.Key, others ...string) func() bool {
	return func() bool { return slices.Equal(n.rivalsOf(key), others) }
}

func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t).start("alone", testBoot, 1)
		for i := range 200 {
			n.hold(testKey(i), 1)
		}
		time.Sleep(10 * time.Minute)
		s := n.Status()
		if n.packets != 0 || s.Leases != 200 || s.Kept != 200 || s.Unacked != 0 || len(s.Problems) != 0 {
			t.Errorf("%d packets, status %+v", n.packets, s)
		}
		for reason, dropped := range s.Dropped {
			t.Errorf("%d dropped: %s", dropped, reason)
		}
		if len(n.told) != 0 {
			t.Errorf("told %v", n.told)
		}
	})
}

// Under loss and disorder all that is double is found within a second, but for what all
// three keepers failed to tell: what is news is told twice. So it is with the leases, which
// are sent again until they are acknowledged.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.loss, f.delay = 0.05, 50*time.Millisecond
		nodes := f.startMany(20)
		time.Sleep(10 * time.Second)
		for i := range 200 {
			nodes[i%20].hold(testKey(i), uint64(1+i))
		}
		unacked := func() (n int) {
			for _, node := range nodes {
				n += node.unacked()
			}
			return n
		}
		time.Sleep(5 * time.Second) // four times
		synctest.Wait()
		if n := unacked(); n > 2 {
			t.Errorf("%d leases of 200 are not acknowledged after 5 s", n)
		}
		eventually(t, 30*time.Second, "all leases acknowledged", func() bool { return unacked() == 0 })
		begun := time.Now()
		for i := range 200 {
			nodes[(i+7)%20].hold(testKey(i), uint64(1000+i))
		}
		untold := func() (list []string) {
			for i := range 200 {
				for _, pair := range [][2]int{{i % 20, (i + 7) % 20}, {(i + 7) % 20, i % 20}} {
					n, other := nodes[pair[0]], nodes[pair[1]].member.Name
					if !n.knows(testKey(i), other)() {
						list = append(list, fmt.Sprintf("%s is told of %v for %v, not of %s", n.member.Name, n.rivalsOf(testKey(i)), testKey(i), other))
					}
				}
			}
			return list
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if list := untold(); len(list) > 4 {
			t.Errorf("after a second, of 400:\n%s", strings.Join(list, "\n"))
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if list := untold(); len(list) > 0 {
			t.Errorf("after 2.5 s, of 400:\n%s", strings.Join(list, "\n"))
		}
		var slowest time.Duration
		for _, n := range nodes {
			_, at := messages[cluster.ConflictNotice](n)
			for _, when := range at {
				slowest = max(slowest, when.Sub(begun))
			}
		}
		t.Logf("the last was told after %v", slowest)
	})
}

// A keeper that dies is replaced, and the next one told: a duplicate that starts afterwards
// is found, though no former keeper is left.
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
		eventually(t, time.Second, "rivals", func() bool { return a.knows(testKey(1), "node-1")() && b.knows(testKey(1), "node-0")() })
	})
}

// Both got their leases kept on their own side of a cut. When it heals, they are found.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(8)
		side := func(name string) bool { return strings.TrimPrefix(name, "node-") < "4" }
		time.Sleep(10 * time.Second)
		f.mu.Lock()
		f.cut = func(from, to string) bool { return side(from) != side(to) }
		f.mu.Unlock()
		tell := func(left bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, n := range f.nodes {
				for _, m := range nodes {
					if side(n.member.Name) == side(m.member.Name) {
						continue
					}
					if left {
						n.handler.Left(m.member, false)
					} else {
						n.handler.Joined(m.member)
					}
				}
			}
		}
		tell(true)
		for i := range 20 {
			nodes[0].hold(testKey(i), 1)
			nodes[7].hold(testKey(i), 2)
		}
		time.Sleep(90 * time.Second)
		if r, _ := messages[cluster.ConflictNotice](nodes[0]); len(r) > 0 {
			t.Errorf("told across the cut: %v", r)
		}
		f.mu.Lock()
		f.cut = nil
		f.mu.Unlock()
		tell(false)
		eventually(t, 6*time.Second, "rivals after the heal", func() bool {
			for i := range 20 {
				if !nodes[0].knows(testKey(i), "node-7")() || !nodes[7].knows(testKey(i), "node-0")() {
					return false
				}
			}
			return true
		})
	})
}

// All agents are upgraded, one after the other. The leases move to the new ones, nobody is
// told of rivals who are none, and a duplicate afterwards is found.
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
			if r, _ := messages[cluster.ConflictNotice](n); len(r) > 0 || n.unacked() > 0 {
				t.Errorf("%s: rivals %v, %d not acknowledged, %v", n.member.Name, r, n.unacked(), n.Status().Dropped)
			}
		}
		nodes[5].hold(testKey(0), 99)
		eventually(t, time.Second, "rivals", func() bool {
			return nodes[0].knows(testKey(0), "node-5")() && nodes[5].knows(testKey(0), "node-0")()
		})
		// The claims are in the name of the nodes, whichever agent told them.
		r, _ := messages[cluster.ConflictNotice](nodes[5])
		if got := r[0].Bindings[0].Holder.ID.Node; got != nodes[0].member.NodeID() {
			t.Errorf("the rival is on %s", got)
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
			f.mu.Lock()
			n.hears = false
			f.mu.Unlock()
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

// A keeper that took a node for dead for a moment tells it afterwards what it missed, though
// the node itself has noticed nothing.
func TestTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(3)
		nodes[0].hold(testKey(1), 1)
		time.Sleep(10 * time.Second)
		for _, n := range nodes[1:] {
			n.handler.Left(nodes[0].member, false)
		}
		f.mu.Lock() // what the newcomer tells gets lost
		f.cut = func(_, to string) bool { return to == "node-0" }
		f.mu.Unlock()
		nodes[1].hold(testKey(1), 2)
		time.Sleep(time.Second)
		nodes[2].kill() // nobody tells it again but by chance
		f.mu.Lock()
		f.cut = nil
		f.mu.Unlock()
		nodes[1].handler.Joined(nodes[0].member)
		eventually(t, 100*time.Millisecond, "a rival", nodes[0].knows(testKey(1), "node-1"))
	})
}

// More packets at once than the loop takes at once.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNet(t).start("node", testBoot, 1)
		for range maxInbox + 100 {
			n.handler.Packet([]byte("hello"))
		}
		synctest.Wait()
		if d := n.Status().Dropped; d["magic"]+d[dropInbox] != maxInbox+100 || d["magic"] < maxInbox {
			t.Errorf("dropped %v", d)
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
			if r, _ := messages[cluster.ConflictNotice](n); len(r) > 0 {
				t.Errorf("%s is told %v", n.member.Name, r)
			}
		}
	})
}

// An address goes from node to node and back, with packets overtaking each other. In the
// end, one has it.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		f.delay, f.loss = 400*time.Millisecond, 0.05
		nodes := f.startMany(6)
		time.Sleep(10 * time.Second)
		for round := range 20 {
			n := nodes[round%2]
			c := n.hold(testKey(1), uint64(round+1))
			time.Sleep(time.Duration(20+round*20) * time.Millisecond)
			n.Withdraw(testKey(1), c.Holder.ID, nil)
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
			if r, _ := messages[cluster.ConflictNotice](n); len(r) > 0 {
				t.Errorf("%s is told %v", n.member.Name, r)
			}
		}
	})
}
