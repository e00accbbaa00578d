package scale

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
)

// ownCount is how many addresses node i has itself.
func (tw *simulation) ownCount(i int) int {
	if i >= len(tw.agents)-*crowded {
		return *ownMany
	}
	return *own
}

// ownKey is an own address of node i. The first ones are those of all nodes.
func ownKey(i, n int) detector.Key {
	first := uint32(100<<24 + i*4096)
	if n < *ownShared {
		first = 99 << 24
	}
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, first+uint32(n))))}
}

// ownTaken has pods take addresses of other nodes themselves, most of them of crowded nodes.
func (tw *simulation) ownTaken(n int, r *report) {
	if *own <= *ownShared {
		return // the nodes have no addresses of which a pod may be the second holder
	}
	r.begin(fmt.Sprintf("%d pods take addresses of other nodes", n))
	var list []*duplicate
	var steps []step
	var ends []func()
	last, taken := len(tw.agents)-1, make(map[detector.Key]bool)
	for p := range n {
		a, b := last-p%min(*crowded+2, last+1), tw.random.IntN(last) // b is another one
		if b >= a {
			b++
		}
		key := ownKey(a, *ownShared+p%(tw.ownCount(a)-*ownShared))
		if taken[key] {
			continue
		}
		taken[key] = true
		steps = append(steps, step{tw.sometime(time.Minute), func() {
			list = append(list, tw.watch.expect(key, 2))
			tw.start(b, key, tw.netns())
			ends = append(ends, func() { tw.end(b, key) })
		}})
	}
	play(steps)
	tw.await(list, 20*time.Second)
	r.foundIn(list, steady)
	for _, f := range ends {
		f()
	}
	time.Sleep(20 * time.Second)
	r.end()
}
