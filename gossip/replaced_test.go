package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// A member that was replaced by another boot at its address, and that sends something, is there all the same.
func TestReplacedSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newFakeNet(t).startMany(3)
		other := nodes[1].member
		other.Boot = "other"
		other.ID = wire.MemberIDOf(other.Name, other.Boot, other.Epoch)
		time.Sleep(time.Minute)
		nodes[0].handler.Joined(other)
		nodes[0].handler.Left(other, false)
		synctest.Wait()
		state := func() cluster.State {
			for _, m := range nodes[0].Members() {
				if m.Boot == nodes[1].member.Boot && m.Name == other.Name {
					return m.State
				}
			}
			return ""
		}
		if state() != cluster.Dead {
			t.Fatal("it was not replaced")
		}
		nodes[0].hold(testKey(1), 1)
		nodes[1].hold(testKey(1), 2)
		eventually(t, 6*time.Second, "notices", func() bool {
			return state() == cluster.Alive && nodes[0].knows(testKey(1), "node-1")() && nodes[1].knows(testKey(1), "node-0")()
		})
	})
}
