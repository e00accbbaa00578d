package gossip

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// TestShelf: whatever is asked of it, an agent keeps few documents, and says what it dropped.
func TestShelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		nodes := f.startMany(20)
		n := nodes[0]
		n.binds(6000) // on about 130 pages: not all of them fit
		ask := func(from *fakeNode, id uint64, page int) {
			n.handler.Packet(wire.Encode(from.id, wire.Query{ID: id, Page: page, Kind: cluster.QueryBindings}))
			synctest.Wait()
		}
		kept := func(from *fakeNode) (documents, of, size int) {
			n.state.Lock()
			defer n.state.Unlock()
			for _, d := range n.queries.shelf.documents {
				if from != nil && d.asker == from.id {
					of++
				}
				for _, p := range d.pages {
					size += len(p)
				}
			}
			if size != n.queries.shelf.size {
				t.Errorf("%d bytes are kept, %d counted", size, n.queries.shelf.size)
			}
			return len(n.queries.shelf.documents), of, size
		}

		ask(nodes[1], 1, 0)
		ask(nodes[1], 1, 0)
		ask(nodes[1], 1, 1)
		if m, _ := messages[cluster.Query](n); len(m) != 1 {
			t.Errorf("the agent was asked %d times", len(m))
		}
		ask(nodes[1], 2, 1)
		ask(nodes[1], 1, wire.MaxPages-1)
		if got := n.dropped(dropNoDocument); got != 2 {
			t.Errorf("%d pages that are not there, want 2", got)
		}
		for i := range uint64(maxOfOne + 3) {
			ask(nodes[2], i+1, 0)
		}
		if all, of, _ := kept(nodes[2]); of != maxOfOne || all != maxOfOne+1 || n.dropped(dropDocument) != 3 {
			t.Errorf("%d documents, %d of one, %d dropped", all, of, n.dropped(dropDocument))
		}
		for i := range uint64(20) {
			ask(nodes[3], i+100, 0)
		}
		if got := n.dropped(dropQueryRate); got != 0 {
			t.Errorf("%d refused too soon", got)
		}
		ask(nodes[3], 200, 0)
		if got := n.dropped(dropQueryRate); got != 1 {
			t.Errorf("%d refused, want 1", got)
		}
		for _, from := range nodes[4:] {
			for i := range uint64(maxOfOne) {
				ask(from, i+1, 0)
			}
		}
		all, _, size := kept(nil)
		t.Logf("%d documents, %d bytes, dropped %v", all, size, n.Status().Dropped)
		if all >= maxDocuments || size > maxShelf || size < maxShelf*9/10 || n.dropped(dropQueryRate) < 50 {
			t.Errorf("%d documents, %d bytes, dropped %v", all, size, n.Status().Dropped)
		}
		time.Sleep(shelfTime)
		synctest.Wait()
		if all, _, size := kept(nil); all != 0 || size != 0 {
			t.Errorf("%d documents of %d bytes are kept for ever", all, size)
		}
		for i := range 3 * pageBurst {
			n.handler.Packet(wire.Encode(nodes[5].id, wire.Query{ID: 77, Page: i % 3, Kind: cluster.QueryBindings}))
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if m, _ := messages[cluster.Query](n); n.dropped(dropQueryRate) < 2*pageBurst {
			t.Errorf("%v of %d pages are refused; the agent was asked %d times", n.dropped(dropQueryRate), 3*pageBurst, len(m))
		}
	})
}
