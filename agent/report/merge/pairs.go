package merge

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxPairs bounds the pairs of nodes that are told of.
	maxPairs = 1000
	// maxPaired bounds the nodes of one conflict that are paired with each other.
	maxPaired = 16
	// maxExamples is how many addresses a pair names.
	maxExamples = 3
)

type pairID struct{ a, b string }

// Pairs counts the addresses that two nodes share in confirmed conflicts, the most
// first, and adds what pairs of nodes elsewhere tell of themselves.
func Pairs(conflicts []detector.Conflict, reported []cluster.Pair) []cluster.Pair {
	found := make(map[pairID]*cluster.Pair)
	for _, c := range conflicts {
		if c.State == detector.Confirmed {
			pair(found, c)
		}
	}
	for _, p := range reported {
		if p.Addresses <= 0 || p.A == p.B {
			continue
		}
		id := newPairID(p.A, p.B)
		known := found[id]
		if known == nil {
			if len(found) == maxPairs {
				continue
			}
			known = &cluster.Pair{A: id.a, B: id.b}
			found[id] = known
		}
		known.Addresses = max(known.Addresses, p.Addresses)
		known.Since = earlier(known.Since, p.Since)
		known.LastReceived = p.LastReceived
		for _, key := range p.Examples {
			addExample(known, key)
		}
	}
	pairs := make([]cluster.Pair, 0, len(found))
	for _, p := range found {
		pairs = append(pairs, *p)
	}
	slices.SortFunc(pairs, func(x, y cluster.Pair) int {
		return cmp.Or(cmp.Compare(y.Addresses, x.Addresses), cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B))
	})
	return pairs
}

func newPairID(a, b string) pairID { return pairID{min(a, b), max(a, b)} }

// pair counts a conflict for each two of its nodes.
func pair(found map[pairID]*cluster.Pair, c detector.Conflict) {
	var nodes []string
	for _, b := range c.Holders {
		if node := b.Holder.ID.Node; !slices.Contains(nodes, node) && len(nodes) < maxPaired {
			nodes = append(nodes, node)
		}
	}
	for n, a := range nodes {
		for _, b := range nodes[:n] {
			id := newPairID(a, b)
			p := found[id]
			if p == nil {
				if len(found) == maxPairs {
					continue
				}
				p = &cluster.Pair{A: id.a, B: id.b}
				found[id] = p
			}
			p.Addresses++
			p.Since = earlier(p.Since, c.ConfirmedAt)
			addExample(p, c.Key)
		}
	}
}

func addExample(p *cluster.Pair, key detector.Key) {
	if len(p.Examples) < maxExamples && !slices.Contains(p.Examples, key) {
		p.Examples = append(p.Examples, key)
	}
}
