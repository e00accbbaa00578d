package merge

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxPairs limits the pairs of nodes.
	maxPairs = 1000
	// maxPaired limits the nodes of one conflict that are paired with each other.
	maxPaired = 16
	// maxExamples limits the addresses that a pair names.
	maxExamples = 3
)

// Pairs counts the addresses that two nodes share in confirmed conflicts that are no drills, the most first.
func Pairs(conflicts []detector.Conflict) []cluster.Pair {
	found := make(map[[2]string]*cluster.Pair)
	get := func(a, b string) *cluster.Pair { // nil if there are too many
		id := [2]string{min(a, b), max(a, b)}
		if found[id] == nil && len(found) < maxPairs {
			found[id] = &cluster.Pair{A: id[0], B: id[1]}
		}
		return found[id]
	}
	for _, c := range conflicts {
		if c.State != detector.Confirmed || c.Key.IsDrill() {
			continue
		}
		var nodes []string
		for _, b := range c.Holders {
			node := b.Holder.ID.Node
			if slices.Contains(nodes, node) || len(nodes) == maxPaired {
				continue
			}
			for _, other := range nodes {
				if p := get(node, other); p != nil {
					p.Addresses++
					p.Since = earlier(p.Since, c.ConfirmedAt)
					if len(p.Examples) < maxExamples && !slices.Contains(p.Examples, c.Key) {
						p.Examples = append(p.Examples, c.Key)
					}
				}
			}
			nodes = append(nodes, node)
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
