package merge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// maxPairs limits the pairs of nodes.
	maxPairs = 1000
	// maxPaired limits the nodes of one conflict that are paired with each other.
	maxPaired = 16
	// maxExamples limits the addresses that a pair names.
	maxExamples = 3
)

// Pair is the document of a pair of nodes.
type Pair struct {
	A, B string // NodeIDs, A the lesser one
	document.Pair
}

// Pairs counts the addresses that two nodes share in confirmed conflicts that are no drills, the most first.
func Pairs(conflicts []document.Conflict) (pairs []Pair) {
	found := make(map[[2]string]*document.Pair)
	get := func(a, b string) *document.Pair { // by NodeIDs; nil if there are too many
		id := [2]string{min(a, b), max(a, b)}
		if found[id] == nil && len(found) < maxPairs {
			found[id] = new(document.Pair)
		}
		return found[id]
	}
	for _, c := range conflicts {
		if c.State != detector.Confirmed || c.Drill {
			continue
		}
		var nodes []string
		for _, b := range c.Holders {
			node := b.NodeID()
			if slices.Contains(nodes, node) || len(nodes) == maxPaired {
				continue
			}
			for _, other := range nodes {
				if p := get(node, other); p != nil {
					p.Addresses++
					p.Since = schedule.Earlier(p.Since, c.ConfirmedAt)
					example := document.Address{Network: c.Network, IP: c.IP}
					if len(p.Examples) < maxExamples && !slices.Contains(p.Examples, example) {
						p.Examples = append(p.Examples, example)
					}
				}
			}
			nodes = append(nodes, node)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(found), func(x, y [2]string) int {
		return cmp.Or(cmp.Compare(found[y].Addresses, found[x].Addresses), slices.Compare(x[:], y[:]))
	}) {
		names := Names(id[:])
		found[id].Nodes = []string{names[id[0]], names[id[1]]}
		pairs = append(pairs, Pair{id[0], id[1], *found[id]})
	}
	return pairs
}
