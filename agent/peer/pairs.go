package peer

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxPairs bounds the nodes that this one reports to share addresses with.
	maxPairs = 256
	// pairsEvery is how often they are counted while conflicts come and go.
	pairsEvery = time.Second
	// maxExamples bounds the addresses that are named for a pair.
	maxExamples = 3
)

// pairs are the nodes that share addresses with this one.
type pairs struct {
	published map[string]int // addresses by node, as told
	countAt   time.Time      // when to count again; zero: nothing has changed
}

// countPairs tells all nodes how many addresses this one shares with others. Of two nodes the
// lesser one tells.
func (p *Peer) countPairs() {
	p.pairs.countAt = time.Time{}
	present := make(map[string]cluster.Pair)
	for _, c := range p.Detector.Conflicts(false) {
		if c.State != detector.Confirmed {
			continue
		}
		counted := make(map[string]bool)
		for _, h := range c.Holders {
			other := h.Holder.ID.Node
			pair, known := present[other]
			if other <= p.Node || counted[other] || !known && len(present) == maxPairs {
				continue
			}
			counted[other] = true
			pair.A, pair.B = p.Node, other
			pair.Since = earliest(pair.Since, c.ConfirmedAt)
			pair.Addresses++
			if len(pair.Examples) < maxExamples {
				pair.Examples = append(pair.Examples, c.Key)
			}
			present[other] = pair
		}
	}
	for other := range p.pairs.published {
		if _, still := present[other]; !still {
			p.add(SharedAddresses{cluster.Pair{A: p.Node, B: other}})
		}
	}
	published := make(map[string]int, len(present))
	for other, pair := range present {
		if p.pairs.published[other] != pair.Addresses {
			p.add(SharedAddresses{pair})
		}
		published[other] = pair.Addresses
	}
	p.pairs.published = published
}
