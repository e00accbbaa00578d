package merge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
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
	api.Pair
}

// Pairs counts the addresses that two nodes share in confirmed conflicts that are no drills, the most first.
func Pairs(conflicts []detector.Conflict) (pairs []Pair) {
	found := make(map[[2]string]*api.Pair)
	get := func(a, b string) *api.Pair { // by NodeIDs; nil if there are too many
		id := [2]string{min(a, b), max(a, b)}
		if found[id] == nil && len(found) < maxPairs {
			found[id] = new(api.Pair)
		}
		return found[id]
	}
	for _, c := range conflicts {
		if c.State != detector.Confirmed || c.IsDrill() {
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
					p.Since = schedule.Earlier(p.Since, c.ConfirmedAt.Round(0))
					example := api.Address{Network: c.Key.Network, IP: c.Key.IP.String()}
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
