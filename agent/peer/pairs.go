package peer

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxPairs limits the nodes that this node reports to share addresses with.
	maxPairs = 256
	// pairsEvery is how often the shared addresses are counted while conflicts change.
	pairsEvery = time.Second
	// maxExamples limits the addresses that a pair names.
	maxExamples = 3
)

// pairs are the nodes that share addresses with this one.
type pairs struct {
	published map[string]int // number of addresses by node
	countAt   time.Time      // when to count again; zero: nothing has changed
}

// countPairs publishes how many addresses this node shares with others. Of two nodes the one with
// the lesser NodeID does so.
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
			p.add(cluster.Pair{A: p.Node, B: other})
		}
	}
	published := make(map[string]int, len(present))
	for other, pair := range present {
		if p.pairs.published[other] != pair.Addresses {
			p.add(pair)
		}
		published[other] = pair.Addresses
	}
	p.pairs.published = published
}
